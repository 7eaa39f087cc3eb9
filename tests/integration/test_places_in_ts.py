"""Access points of transport streams, found by their position in the file."""

import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import pytest
from av.container import InputContainer
from av.stream import Discard

from codecfleet.actors.media import seeking
from codecfleet.actors.media.opening import demux, open_source
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip

FRAMES, GOP, TICK = 60, 12, 3600
KEYS = frozenset(range(0, FRAMES, GOP))
WRAP = 1 << 33
X264 = f"keyint={GOP}:min-keyint={GOP}:scenecut=0"


def ticks(first: int) -> dict[str, Any]:
    """Return the times of a clip whose first picture is shown at ``first``, in ticks of 90 kHz."""
    return {"times": tuple(first + number * TICK for number in range(FRAMES)), "time_base": Fraction(1, 90_000)}


def clip(path: Path, **changes: Any) -> Path:
    """Make a clip of H.264 with B-pictures."""
    options = (("x264-params", f"{X264}:bframes=3"),)
    return make_clip(path, Clip(**{"times": constant_times(FRAMES), "options": options, **changes}))


def twice(path: Path) -> Path:
    """Make a film whose clock restarts in the middle."""
    content = clip(path).read_bytes()
    path.write_bytes(content + content)
    return path


FILMS: dict[str, Callable[[Path], Path]] = {
    "closed": clip,
    "open": partial(clip, options=(("x264-params", f"{X264}:bframes=3:open-gop=1"),)),
    "hevc": partial(
        clip,
        encoder="libx265",
        options=(("x265-params", f"{X264}:bframes=4:open-gop=1:log-level=none:pools=1:frame-threads=1"),),
    ),
    "mpeg2": partial(
        clip,
        encoder="mpeg2video",
        keyframes=KEYS,
        options=(("bf", "2"),),
        time_base=Fraction(1, 25),
        times=range(FRAMES),
    ),
    "wraps": partial(clip, **ticks(WRAP - 30 * TICK)),
    "begins again": twice,
}


def looks(container: InputContainer, track: int) -> Iterator[tuple[object, ...]]:
    """Yield everything that distinguishes a packet of a track from others."""
    for stream in container.streams:
        stream.discard = Discard.default if stream.index == track else Discard.all
    for packet in demux(container, container.streams[track]):
        digest = hashlib.sha256(bytes(packet)).hexdigest()
        yield packet.pts, packet.dts, packet.pos, packet.is_keyframe, packet.is_corrupt, digest


@pytest.mark.parametrize("name", FILMS)
def test_reading_from_a_place_gives_the_packets_of_a_whole_reading(name: str, tmp_path: Path) -> None:
    """From each access point come the same packets as in a reading from the start, without a search by time."""
    film = FILMS[name](tmp_path / "film.ts")
    index = read_source(str(film)).index
    with open_source(str(film)) as container:
        whole = list(looks(container, index.stream_index))
    points = [point for point in index.access_points[1:] if point.is_unique]
    assert len(points) >= 3
    for point in points:
        with open_source(str(film)) as container:
            container.seek(point.pos_bytes, unsupported_byte_offset=True)
            assert list(looks(container, index.stream_index)) == whole[point.packet :]


def test_a_place_with_another_packet_is_not_taken(tmp_path: Path) -> None:
    """If the index's position holds something else, the packet is searched by its time."""
    film = clip(tmp_path / "film.ts")
    point = read_source(str(film)).index.access_points[2]
    misplaced = seeking.AccessPoint(point.packet, point.pos_bytes - 188, point.pts, point.dts)
    with av.open(str(film)) as container:
        stream = container.streams.video[0]
        assert seeking.packets_from(misplaced, container, stream, lambda: demux(container, stream)) is None
        found = seeking.packets_from(point, container, stream, lambda: demux(container, stream))
        assert found is not None
        number, packet = next(found)
    assert (number, packet.pos) == (point.packet, point.pos_bytes)
