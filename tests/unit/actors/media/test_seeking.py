"""Seeking to an access point gives the same packets as reading everything, and reads few others."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import (
    AccessPoint,
    DecodeRange,
    DecodeTally,
    OpenTrack,
    PictureDecoder,
    decode_range,
    open_track,
)
from codecfleet.actors.media.opening import open_source
from codecfleet.actors.media.seeking import packets_from
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

PICTURES = 48
GOP = "keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0:b-pyramid=normal"
QUIET = "log-level=none:pools=1:frame-threads=1"
CLOCK_25 = {"time_base": Fraction(1, 25), "times": tuple(range(PICTURES))}
AS_THEY_ARE = (("avoid_negative_ts", "disabled"),)


def h264(params: str = "open-gop=1", **changes: object) -> Clip:
    """Return a clip with B-frames that refer to each other, and a keyframe every 12 pictures."""
    options = (("x264-params", f"{GOP}:{params}"),)
    return Clip(**{"times": constant_times(PICTURES), "options": options, **changes})  # type: ignore[arg-type]


def other(encoder: str, **changes: object) -> Clip:
    """Return a clip of another encoder, with two B-frames."""
    options = (("g", "12"), ("bf", "2"))
    return Clip(**{"encoder": encoder, "options": options, **CLOCK_25, **changes})  # type: ignore[arg-type]


HEVC = Clip(
    times=constant_times(PICTURES),
    encoder="libx265",
    options=(("x265-params", f"keyint=12:min-keyint=12:scenecut=0:bframes=3:open-gop=1:{QUIET}"),),
)
DIRECT = {
    "closed.mp4": h264("open-gop=0"),
    "open.mp4": h264(),
    "open.mov": h264(),
    "open.mkv": h264(),
    "open.ts": h264(**CLOCK_25),
    "open.flv": h264(),
    "open.avi": h264(),
    "hevc-open.mp4": HEVC,
    "hevc-open.mkv": HEVC,
    "edit-list.mp4": h264(times=constant_times(PICTURES, start=-120), muxer_options=AS_THEY_ARE),
    "edit-list.mov": h264(times=constant_times(PICTURES, start=-120), muxer_options=AS_THEY_ARE),
    "negative-offsets.mp4": h264(muxer_options=(("movflags", "negative_cts_offsets"),)),
    "fragmented.mp4": h264(muxer_options=(("movflags", "frag_keyframe+empty_moov"),)),
    "short-gops.mov": h264("keyint=3:min-keyint=1"),
    "no-b.mkv": h264("bframes=0"),
    "mpeg2.ts": other("mpeg2video"),
    "mpeg2.mxf": other("mpeg2video", width=160, height=144),
}
"""Clips in which a seek finds every access point."""
ODD = {
    "mpeg4.mkv": other("mpeg4", times=constant_times(PICTURES), time_base=Fraction(1, 1000)),
    "mpeg2.mpg": other("mpeg2video"),
    "open.nut": h264(),
}
"""Clips in which a seek arrives elsewhere: Matroska ignores MPEG-4's reordering, program streams have no positions."""


class Seen(NamedTuple):
    """The part of a packet that is the same however the packet was found; a DTS may be unknown after a seek."""

    number: int
    pts: int | None
    is_discard: bool
    is_keyframe: bool
    payload: bytes


class Recorder(PictureDecoder[VideoFrame]):
    """Decodes nothing, and records the packets that it gets."""

    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, Packet[VideoStream]]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield nothing."""
        del track, tally
        self.seen = [Seen(n, p.pts, p.is_discard, p.is_keyframe, bytes(p)) for n, p in packets]
        yield from ()


def range_of(index: TrackIndex, entry: AccessPoint | None) -> DecodeRange:
    """Return the range from an access point to the end."""
    return DecodeRange(
        source=index.source,
        stream_index=index.stream_index,
        time_base=index.time_base,
        nominal_ticks=index.nominal_ticks,
        entry=entry,
        expected_packets=index.packets_from(entry, None),
    )


def packets_decoded(index: TrackIndex, entry: AccessPoint | None) -> list[Seen]:
    """Return the packets that a decoder gets from an access point on."""
    recorder = Recorder()
    assert list(decode_range(range_of(index, entry), DecodeTally(), recorder)) == []
    return recorder.seen


def packets_read(index: TrackIndex, entry: AccessPoint) -> int:
    """Return how many packets are read until the access point is reached."""
    read = 0
    with open_source(index.source) as container:
        stream = open_track(container, range_of(index, entry)).stream

        def demux() -> "Iterator[Packet[VideoStream]]":
            nonlocal read
            for packet in container.demux(stream):
                read += 1
                yield packet

        found = packets_from(entry, container, stream, demux)
        assert found is not None
        assert next(found)[0] == entry.packet
    return read


def indexed(folder: Path, name: str) -> TrackIndex:
    """Make a clip and index it."""
    return read_source(str(make_clip(folder / name, {**DIRECT, **ODD}[name]))).index


@pytest.mark.parametrize("name", [*DIRECT, *ODD])
def test_an_access_point_begins_what_reading_everything_gives_there(name: str, tmp_path: Path) -> None:
    """In any container, the packets from an access point on are those of a full read, with the same numbers."""
    index = indexed(tmp_path, name)
    whole = packets_decoded(index, None)
    assert len(index.access_points) > 3
    assert [point.is_discarded for point in index.access_points] == [
        whole[point.packet].is_discard for point in index.access_points
    ]
    for point in index.access_points[1:]:
        assert packets_decoded(index, point) == whole[point.packet :]


def test_a_time_that_no_timestamp_can_hold_is_counted_to(tmp_path: Path) -> None:
    """Damaged times may exceed 64 bits: such packets cannot be sought, and nothing fails."""
    index = indexed(tmp_path, "closed.mp4")
    whole = packets_decoded(index, None)
    for beyond in ({"pts": 2**62, "dts": -(2**62)}, {"pts": 2**63}, {"pts": -(2**63) - 1}):
        point = replace(index.access_points[1], **beyond)
        assert packets_decoded(index, point) == whole[point.packet :]


@pytest.mark.parametrize("name", DIRECT)
def test_seeking_reads_no_packet_but_the_one_it_is_for(name: str, tmp_path: Path) -> None:
    """If the demuxer can seek to an access point, no packet before it is read."""
    index = indexed(tmp_path, name)
    assert [packets_read(index, point) for point in index.access_points[1:]] == [1] * (len(index.access_points) - 1)


def split_edit(path: Path, first_ms: int, first_ticks: int) -> None:
    """Split the only edit of an MP4 file in two adjacent edits, so that the keyframe between them is read twice.

    Args:
        path: the file.
        first_ms: the first edit's length in the movie's ticks, which are milliseconds.
        first_ticks: the first edit's length in the media's ticks.
    """
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") - 4
    size, _, _, count, duration, start, rate = struct.unpack_from(">I4sIIIiI", data, at)
    assert (size, count) == (28, 1), "an edit list of one entry, in its short form"
    assert data.index(b"mdat") < at, "the media data that the sample tables point to must not move"
    data[at + size : at + size] = struct.pack(">IiI", duration - first_ms, start + first_ticks, rate)
    struct.pack_into(">II", data, at + 12, 2, first_ms)
    for box in (b"elst", b"edts", b"trak", b"moov"):
        place = data.index(box) - 4
        struct.pack_into(">I", data, place, struct.unpack_from(">I", data, place)[0] + 12)
    path.write_bytes(data)


def test_a_sample_that_an_edit_list_reads_twice_is_counted_to(tmp_path: Path) -> None:
    """Two packets that look alike are never confused: they are found by their numbers."""
    path = make_clip(tmp_path / "twice.mp4", DIRECT["closed.mp4"])
    once = read_source(str(path)).index
    split_edit(path, first_ms=960, first_ticks=int(Fraction(96, 100) / once.time_base))
    index = read_source(str(path)).index
    assert index.packets > once.packets
    assert not all(point.is_unique for point in index.access_points)
    whole = packets_decoded(index, None)
    for point in index.access_points[1:]:
        assert packets_decoded(index, point) == whole[point.packet :]


class Written(NamedTuple):
    """One packet of a ``Tape``."""

    pos: int | None
    pts: int | None
    dts: int | None
    is_keyframe: bool = True
    is_discard: bool = False


class Tape:
    """A container with given results of seeks: for each timestamp, the number of the next packet."""

    def __init__(self, packets: list[Written], lands: dict[int, int], *, flags: int = 0x4000000) -> None:
        self.format = SimpleNamespace(flags=flags, name="tape")
        self.read = 0
        self.sought: list[int] = []
        self._packets = packets
        self._lands = lands
        self._next = 0

    def seek(self, ticks: int, *, stream: object) -> None:
        """Land."""
        del stream
        self.sought.append(ticks)
        self._next = self._lands[ticks]

    def demux(self) -> Iterator[Written]:
        """Yield the packets from the current position on."""
        for packet in self._packets[self._next :]:
            self.read += 1
            yield packet

    def found(self, entry: AccessPoint) -> int | None:
        """Return the number of the first packet found; None if no packet is found."""
        container: InputContainer = self  # type: ignore[assignment]
        stream: VideoStream = None  # type: ignore[assignment]
        packets = packets_from(entry, container, stream, self.demux)  # type: ignore[arg-type]
        return None if packets is None else next(packets)[0]


GOPS = [Written(n * 100, n * 40 + 80, n * 40, n % 4 == 0) for n in range(12)]
"""Three groups of four packets, each shown two pictures after it is decoded."""
ENTRY = AccessPoint(packet=4, pos_bytes=400, pts=240, dts=160)


@pytest.mark.parametrize(
    ("lands", "sought", "read"),
    [
        ({240: 4}, [240], 1),
        ({240: 0, 320: 4}, [240, 320], 2),
        ({240: 8, 320: 8, 160: 4}, [240, 320, 160], 3),
        ({240: 8, 320: 8, 160: 0}, [240, 320, 160], 7),
        ({240: 12, 320: 12, 160: 4}, [240, 320, 160], 1),
    ],
)
def test_a_demuxer_that_seeks_by_pts_is_asked_for_the_pts_first(
    lands: dict[int, int], sought: list[int], read: int
) -> None:
    """A seek that misses the entry costs one packet; from the safe timestamp, packets are read up to the entry."""
    tape = Tape(GOPS, lands)
    assert (tape.found(ENTRY), tape.sought, tape.read) == (4, sought, read)


def test_a_demuxer_that_seeks_by_dts_is_asked_once() -> None:
    """If the demuxer seeks by DTS, only the smaller timestamp is right."""
    tape = Tape(GOPS, {160: 4}, flags=0)
    assert (tape.found(ENTRY), tape.sought) == (4, [160])


@pytest.mark.parametrize(
    "other",
    [
        AccessPoint(packet=4, pos_bytes=401, pts=240, dts=160),
        AccessPoint(packet=4, pos_bytes=400, pts=241, dts=160),
        AccessPoint(packet=4, pos_bytes=400, pts=240, dts=159),
        AccessPoint(packet=5, pos_bytes=500, pts=280, dts=200),
        AccessPoint(packet=4, pos_bytes=400, pts=240, dts=160, is_discarded=True),
    ],
)
def test_a_packet_at_another_place_or_time_or_hidden_or_no_keyframe_is_another(other: AccessPoint) -> None:
    """The search accepts only a packet that is certainly the entry, and reads at most one packet past the entry."""
    tape = Tape(GOPS, dict.fromkeys((240, 241, 320, 321, 322, 160, 159, 280, 360, 200), 4))
    assert tape.found(other) is None
    assert tape.read <= 5


def test_an_unknown_dts_needs_a_pts() -> None:
    """With an unknown DTS after a seek, position and PTS identify a packet, but the position alone never does."""
    early = [each._replace(dts=None) for each in GOPS]
    assert Tape(early, {240: 4}).found(ENTRY) == 4
    nameless = [each._replace(dts=None, pts=None) for each in GOPS]
    entry = AccessPoint(packet=4, pos_bytes=400, pts=None, dts=160)
    assert Tape(nameless, {160: 4}).found(entry) is None


def test_what_is_not_unique_is_not_sought() -> None:
    """If two packets look alike, a seek cannot tell which of them it has found."""
    tape = Tape(GOPS, {})
    assert tape.found(AccessPoint(packet=4, pos_bytes=400, pts=240, dts=160, is_unique=False)) is None
    assert (tape.sought, tape.read) == ([], 0)
