"""A source that is read in parts from a store gives the pictures of a local one."""

import secrets
from collections import Counter
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range
from codecfleet.actors.decode.describe import frame_side_data
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.media import kept_sources
from codecfleet.actors.media.kept_sources import KEPT
from codecfleet.actors.media.opening import open_source
from codecfleet.errors import CodecfleetError
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.source.source import SourceReading, read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .local_jobs import remuxed
from .test_kept_sources import Recorder

FRAGMENTED = "frag_keyframe+empty_moov+default_base_moof"
CONTAINERS: dict[str, dict[str, str]] = {
    "plain.mp4": {},
    "fragmented.mp4": {"movflags": FRAGMENTED},
    "no-mfra.mp4": {"movflags": f"{FRAGMENTED}+skip_trailer"},
    "half-fragmented.mp4": {"movflags": "frag_keyframe"},
    "each-frame.mp4": {"movflags": "frag_every_frame+empty_moov"},
    "dash.mp4": {"movflags": f"{FRAGMENTED}+dash"},
    "sidx.mp4": {"movflags": f"{FRAGMENTED}+dash+global_sidx"},
    "negative-offsets.mp4": {"movflags": f"{FRAGMENTED}+negative_cts_offsets"},
    "in.mov": {"movflags": "frag_keyframe+empty_moov"},
    "timeless.mp4": {"movflags": FRAGMENTED},
    "cues.mkv": {},
    "no-cues.mkv": {"live": "1"},
    "short-clusters.mkv": {"live": "1", "cluster_time_limit": "90"},
    "no-cues.webm": {"live": "1"},
    "broadcast.ts": {},
}
IN_PARTS = {
    "fragmented.mp4",
    "no-mfra.mp4",
    "half-fragmented.mp4",
    "each-frame.mp4",
    "dash.mp4",
    "negative-offsets.mp4",
    "in.mov",
}
FAST = {"plain.mp4", "fragmented.mp4", "negative-offsets.mp4", "timeless.mp4", "no-cues.mkv", "broadcast.ts"}
TIMELESS = "timeless"
"""A film whose fragments do not state their start, so a part of it would begin at 0."""
GOP = "keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:b-pyramid=normal:open-gop=1"
CLIP = Clip(times=constant_times(120), options=(("x264-params", GOP), ("crf", "4")), width=160, height=120)
VP9 = Clip(times=CLIP.times, encoder="libvpx-vp9", options=(("deadline", "realtime"), ("g", "12")))
SEGMENT_S = Fraction(1)


class Reading(NamedTuple):
    """Records what a worker was given for each segment, and how many times it opened a part or the whole file."""

    pictures: list[Any]
    parts: int
    wholes: int


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clips that films are made of."""
    folder = tmp_path_factory.mktemp("clips")
    make_clip(folder / "h264.mkv", CLIP)
    make_clip(folder / "vp9.mkv", VP9)
    return folder


def film(clips: Path, path: Path) -> Path:
    """Put a clip of five seconds into a container."""
    clip = clips / ("vp9.mkv" if path.suffix == ".webm" else "h264.mkv")
    remuxed(clip, path, options=CONTAINERS[path.name])
    if path.stem == TIMELESS:
        path.write_bytes(path.read_bytes().replace(b"tfdt", b"free"))
    return path


def in_memory(path: Path) -> str:
    """Put a file into a store; return its address."""
    name = f"{secrets.token_hex(4)}{path.suffix}"
    MemoryFileSystem().pipe_file(f"/{name}", path.read_bytes())
    return f"memory://{name}"


def read(url: str, reading: SourceReading, monkeypatch: pytest.MonkeyPatch, *, decoded: bool = True) -> Reading:
    """Read packets and pictures of each segment of the source at ``url`` separately."""
    opened: Counter[bool] = Counter()

    def counted(url: str, wanted: Any, **options: Any) -> Any:
        opened[wanted.part is not None] += 1
        return open_source(url, wanted, **options)

    monkeypatch.setattr(kept_sources, "open_source", counted)
    ranges = TrackRanges.cut(reading.index, start_s=None, end_s=None, segment_s=SEGMENT_S)
    found = []
    for segment in ranges.segments:
        KEPT.close_idle(0)
        range_ = replace(ranges.decode(segment, 0), source=url)
        packets = Recorder()
        assert list(decode_range(range_, DecodeTally(), packets)) == []
        found.append((packets.seen, pictures_of(range_) if decoded else ()))
    KEPT.close_idle(0)
    return Reading(found, opened[True], opened[False])


def pictures_of(range_: DecodeRange) -> list[object]:
    """Return a range's pictures with their side data, and the counts of decoding them."""
    tally = DecodeTally()
    with closing(decode_range(range_, tally, SOFTWARE)) as decoded:
        found: list[object] = [(picture_hash(ticks, frame), frame_side_data(frame)) for ticks, frame in decoded]
    return [*found, replace(tally, decode_s=0)]


@pytest.mark.parametrize("name", swept(CONTAINERS, is_slow=lambda name: name not in FAST))
def test_a_segment_from_a_store_has_the_packets_and_pictures_of_one_from_here(
    name: str, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is the same in any container, whether a worker gets the whole file or a part."""
    path = film(clips, tmp_path / name)
    url = in_memory(path)
    here, there = read_source(str(path)), read_source(url)
    assert (here.picture, here.index.packets) == (there.picture, there.index.packets)
    near, far = read(str(path), here, monkeypatch), read(url, there, monkeypatch)
    assert near.parts == 0
    assert (far.wholes == 0) is (name in IN_PARTS)
    assert far.pictures == near.pictures
    assert read(url, here, monkeypatch).pictures == near.pictures


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_footage_gives_the_same_packets_and_pictures(shared_media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files give equal packets here and from a store; pictures are compared where reading differs."""
    tried: Counter[str] = Counter()
    for path in sorted(shared_media.iterdir()):
        if path.suffix not in (".mp4", ".mov", ".mkv", ".webm", ".ts"):
            continue
        try:
            reading = read_source(str(path))
            decoded = path.suffix in (".mkv", ".webm") or reading.index.fragments is not None
            near = read(str(path), reading, monkeypatch, decoded=decoded)
        except CodecfleetError:
            continue
        url = in_memory(path)
        far = read(url, reading, monkeypatch, decoded=decoded)
        MemoryFileSystem().rm(url)
        assert far.pictures == near.pictures, path.name
        tried[path.suffix] += 1
    assert min(tried.values()) > 1
