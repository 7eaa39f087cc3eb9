"""Sources that stay open between ranges give the same packets as freshly opened ones, with fewer reads."""

import random
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode import decoding
from codecfleet.actors.decode.decoding import (
    AccessPoint,
    DecodeRange,
    DecodeTally,
    OpenTrack,
    PictureDecoder,
    decode_range,
)
from codecfleet.actors.media import kept_sources
from codecfleet.actors.media.av_stream import decoder_mark
from codecfleet.actors.media.kept_sources import KeptSources
from codecfleet.actors.media.opening import open_source
from codecfleet.actors.media.remote_file import WantedBytes
from codecfleet.errors import InputUnreadable
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip

if TYPE_CHECKING:
    from av.packet import Packet

TRIES = 24
POINTS = 8
GOP = "keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:b-pyramid=normal:open-gop=1"
FILM = Clip(times=constant_times(120), options=(("x264-params", GOP),))
OPEN_GOP_HEVC = "keyint=12:min-keyint=12:scenecut=0:bframes=3:open-gop=1:log-level=none:pools=1:frame-threads=1"
CLIPS = {
    "plain.mp4": FILM,
    "plain.mov": FILM,
    "edit-list.mp4": Clip(
        times=constant_times(120, start=-120), options=FILM.options, muxer_options=(("avoid_negative_ts", "disabled"),)
    ),
    "plain.mkv": FILM,
    "without-cues.mkv": Clip(times=FILM.times, options=FILM.options, muxer_options=(("live", "1"),)),
    "cues-first.mkv": Clip(times=FILM.times, options=FILM.options, muxer_options=(("reserve_index_space", "4096"),)),
    "short-clusters.mkv": Clip(times=FILM.times, options=FILM.options, muxer_options=(("cluster_time_limit", "90"),)),
    "hevc.mkv": Clip(times=FILM.times, encoder="libx265", options=(("x265-params", OPEN_GOP_HEVC),)),
    "hevc.mp4": Clip(times=FILM.times, encoder="libx265", options=(("x265-params", OPEN_GOP_HEVC),)),
    "vp9.webm": Clip(times=FILM.times, encoder="libvpx-vp9", options=(("deadline", "realtime"), ("g", "12"))),
    "mpeg4.mkv": Clip(times=FILM.times, encoder="mpeg4", options=(("g", "12"), ("bf", "2"))),
}
OPENED_EACH_TIME = {
    "fragmented.mp4": Clip(
        times=FILM.times, options=FILM.options, muxer_options=(("movflags", "frag_keyframe+empty_moov"),)
    ),
    "broadcast.ts": FILM,
}


class Recorder(PictureDecoder[VideoFrame]):
    """Does not decode; records everything about the packets that it gets, up to ``most``."""

    name = "recorder"

    def __init__(self, most: int | None = None) -> None:
        self.seen: list[tuple[object, ...]] = []
        self._most = most

    def decode(
        self, track: OpenTrack, packets: Iterator[tuple[int, Any]], tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield nothing."""
        del tally
        mark = decoder_mark(track.stream)
        self.seen = [(mark, number, *_facts(packet)) for number, packet in islice(packets, self._most)]
        yield from ()


def _facts(packet: "Packet[Any]") -> tuple[object, ...]:
    side_data = tuple((entry.data_type, zlib.crc32(bytes(entry))) for entry in packet.iter_sidedata())
    flags = packet.is_keyframe, packet.is_discard, packet.is_corrupt
    return packet.pts, packet.dts, packet.duration, packet.pos, flags, side_data, zlib.crc32(bytes(packet))


class Bench:
    """Reads a source's ranges with kept sources, and counts how many times the source was opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
        self.source = source
        self.index = read_source(source).index
        self.opened: Counter[str] = Counter()
        self.undecoded = 0
        self._counting = threading.Lock()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(kept_sources, "open_source", self._counted)
        self.restart()

    def restart(self) -> None:
        """Drop all kept sources."""
        self.kept = KeptSources()
        self._monkeypatch.setattr(decoding, "KEPT", self.kept)

    def packets(self, point: AccessPoint | None, most: int | None = None) -> list[tuple[object, ...]]:
        """Return the packets that a decoder gets from an access point on."""
        recorder = Recorder(most)
        assert not list(decode_range(range_of(self.index, point), DecodeTally(), recorder))
        return recorder.seen

    def _counted(self, url: str, wanted: WantedBytes, *, undecoded: bool, **options: Any) -> Any:
        with self._counting:
            self.opened[url] += 1
            self.undecoded += undecoded
        return open_source(url, wanted, undecoded=undecoded, **options)


def range_of(index: TrackIndex, entry: AccessPoint | None) -> DecodeRange:
    """Return the range from an access point to the end."""
    return DecodeRange(
        source=index.source,
        stream_index=index.stream_index,
        time_base=index.time_base,
        nominal_ticks=index.nominal_ticks,
        entry=entry,
    )


def differing(bench: Bench) -> list[int | None]:
    """Read ranges in any order, to the end or not; return the entries whose packets differ from ``fresh``."""
    draw = random.Random(bench.source)  # noqa: S311 - not for secrets
    points: list[AccessPoint | None] = [None, *bench.index.access_points]
    points = draw.sample(points, min(POINTS, len(points)))
    fresh = {}
    for point in points:
        bench.restart()
        fresh[point] = bench.packets(point)
        bench.kept.close_idle(0)
    bench.restart()
    bench.opened.clear()
    found: list[int | None] = []
    for point in [draw.choice(points) for _ in range(TRIES)]:
        most = draw.choice((1, 5, 40, None))
        if bench.packets(point, most) != fresh[point][:most]:
            found.append(None if point is None else point.packet)
    bench.kept.close_idle(0)
    return found


def differing_opened_again(bench: Bench) -> list[int | None]:
    """Return the entries with other packets or another decoder setup if the source is already open."""
    found: list[int | None] = []
    for point in (None, *bench.index.access_points[:POINTS]):
        bench.restart()
        fresh = bench.packets(point)
        bench.restart()
        with bench.kept.borrow(bench.source, bench.index.stream_index):
            if bench.packets(point) != fresh:
                found.append(None if point is None else point.packet)
        bench.kept.close_idle(0)
    return found


@pytest.mark.parametrize(("name", "undecoded"), [("plain.mp4", 7), ("plain.mkv", 0), ("broadcast.ts", 0)])
def test_of_threads_that_open_a_source_at_once_one_decodes(
    name: str, undecoded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that open a source at once wait for the first one's result, and then each opens it for itself."""
    bench = Bench(monkeypatch, str(make_clip(tmp_path / name, (CLIPS | OPENED_EACH_TIME)[name])))
    together, track = threading.Barrier(8), bench.index.stream_index

    def hold(_: int) -> object:
        together.wait(10)
        with bench.kept.borrow(bench.source, track) as opened:
            together.wait(10)
            return opened.container

    with ThreadPoolExecutor(8) as threads:
        containers = list(threads.map(hold, range(8)))
    assert len({id(container) for container in containers}) == 8
    assert (bench.opened.total(), bench.undecoded) == (8, undecoded)
    bench.kept.close_idle(0)


def test_only_a_forgotten_source_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the frames of one film leaves other films' files open."""
    bench = Bench(monkeypatch, str(make_clip(tmp_path / "film.mp4", FILM)))
    opened = []
    for forgotten in ("another.mp4", bench.source, bench.source):
        bench.packets(bench.index.access_points[2], 5)
        opened.append(bench.opened.total())
        bench.kept.forget(forgotten)
    assert opened == [1, 1, 2]
    bench.kept.close_idle(0)


@pytest.mark.parametrize("name", CLIPS | OPENED_EACH_TIME)
def test_a_kept_source_gives_the_packets_of_a_fresh_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packets are the same whatever was read before, and there are fewer openings if the container allows it.

    On a second opening, no picture of an mp4 is decoded to find out again what the first opening found. Reading a
    fragmented file changes its index.
    """
    bench = Bench(monkeypatch, str(make_clip(tmp_path / name, (CLIPS | OPENED_EACH_TIME)[name])))
    assert differing_opened_again(bench) == []
    assert bool(bench.undecoded) == name.endswith((".mp4", ".mov"))
    assert differing(bench) == []
    assert name in OPENED_EACH_TIME or bench.opened[bench.source] < TRIES


def test_a_source_that_was_replaced_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept source belongs to one version of its file."""
    path = make_clip(tmp_path / "film.mp4", FILM)
    bench = Bench(monkeypatch, str(path))
    before = bench.packets(bench.index.access_points[1])
    other = make_clip(tmp_path / "other.mp4", Clip(times=FILM.times, options=FILM.options, height=64))
    other.replace(path)
    bench.index = read_source(str(path)).index
    assert bench.packets(bench.index.access_points[1]) != before
    assert bench.opened[bench.source] == 2


def test_what_is_idle_is_closed(tmp_path: Path) -> None:
    """A source that is unused for a while is closed; over the limit, the longest unused one is closed."""
    now_s = 0.0
    kept = KeptSources(most=2, clock=lambda: now_s)
    films = [str(make_clip(tmp_path / f"{number}.mp4", FILM)) for number in range(3)]
    found = []
    for film in films:
        with kept.borrow(film, 0) as source:
            found.append(source)
    assert [source.is_closed for source in found] == [True, False, False]
    now_s = 29.0
    with kept.borrow(films[1], 0) as source:
        assert source is found[1]
    assert not found[2].is_closed
    now_s = 31.0
    kept.close_idle()
    assert [source.is_closed for source in found] == [True, False, True]


def test_a_failure_ends_a_source(tmp_path: Path) -> None:
    """A source on which a range failed is not used again."""
    film = str(make_clip(tmp_path / "film.mp4", FILM))
    kept = KeptSources()
    error = InputUnreadable("it broke off", "Try again.")
    borrowed = kept.borrow(film, 0)
    source = borrowed.__enter__()
    assert not borrowed.__exit__(InputUnreadable, error, None)
    assert source.is_closed


def test_a_source_is_given_back_while_others_are_looked_through(tmp_path: Path) -> None:
    """Garbage collection may end a generator that holds a source at any time, even inside the keeper's own code."""
    path = str(make_clip(tmp_path / "plain.mkv", FILM))
    held = ExitStack()

    def clock() -> float:
        held.close()
        return 0

    kept = KeptSources(clock=clock)
    with kept.borrow(path, 0) as first:
        pass
    held.enter_context(kept.borrow(path, 0))
    finished = threading.Thread(target=kept.close_idle, daemon=True)
    finished.start()
    finished.join(10)
    assert not finished.is_alive()
    with kept.borrow(path, 0) as again:
        assert again is first
