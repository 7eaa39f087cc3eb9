"""Checks the output's video track: packets, clocks, presentation times, and decoding from keyframes."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import dropwhile, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import av.error
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...actors.media.opening import open_source
from .pictures import plane_bytes
from .reference.reference_decode import open_track
from .verdict import Check, check, not_applicable

if TYPE_CHECKING:
    from av.packet import Packet


_UNTIMED = frozenset({"h264", "hevc", "vvc", "obu", "m4v", "mpegvideo"})
_ACCESS_POINTS = 8
_ACCESS_FRAMES = 3
_PICTURE_BUFFER = 16


class OutputPacket(NamedTuple):
    """A packet of the output's video track. Times are in ticks, or None if the container states no times."""

    pts: int | None
    dts: int | None
    key: bool
    discarded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputScan:
    """The output's video track, demuxed but not decoded."""

    muxer: str
    time_base: Fraction
    packets: tuple[OutputPacket, ...]

    @property
    def timed(self) -> bool:
        """Whether the container states times; raw bitstreams do not."""
        return not _UNTIMED & set(self.muxer.split(","))

    def access_points(self) -> dict[int, int]:
        """Return keyframes spread over the track, as {number of the shown frame: number of the packet}."""
        keys = [number for number, packet in enumerate(self.packets) if packet.key]
        if len(keys) > _ACCESS_POINTS:
            keys = [keys[round(n * (len(keys) - 1) / (_ACCESS_POINTS - 1))] for n in range(_ACCESS_POINTS)]
        shown = sorted(p.pts for p in self.packets if p.pts is not None) if self.timed else []
        times = [(key, self.packets[key].pts if self.timed else None) for key in keys]
        return {key if pts is None else int(np.searchsorted(shown, pts)): key for key, pts in times}


def scan_output(output: str) -> OutputScan:
    """Read every packet of the output's video track."""
    with open_track(output) as track:
        muxer = track.container.format.name
        # Matroska has no DTS, and FFmpeg infers it wrongly if sound starts seconds earlier.
        states_dts = "matroska" not in muxer
        packets = tuple(
            OutputPacket(p.pts, p.dts if states_dts else None, p.is_keyframe, p.is_discard)
            for p in track.container.demux(track.stream)
            if p.size
        )
        return OutputScan(muxer=muxer, time_base=track.time_base, packets=packets)


def check_stream(scan: OutputScan, frames: int) -> list[Check]:
    """Check that the output's first packet is a keyframe, that no packet is hidden, and that clocks run forward."""
    hidden, packets = sum(packet.discarded for packet in scan.packets), len(scan.packets)
    no_hidden, held = "no packets that an edit list hides", "an edit list hides no packet"
    checks = [
        check("stream.first-key", expected=True, found=bool(scan.packets) and scan.packets[0].key),
        check("stream.hidden", no_hidden, hidden, passed=not hidden, held=held),
        check("stream.packets", frames, packets, passed=packets >= frames, detail="a packet per frame"),
    ]
    if not scan.timed:
        return [*checks, not_applicable("stream.clock", "a raw bitstream states no times")]
    return [*checks, _check_clock(scan.packets)]


def _check_clock(packets: Sequence[OutputPacket]) -> Check:
    decoding = [packet.dts for packet in packets if packet.dts is not None]
    backward = sum(later <= earlier for earlier, later in pairwise(decoding))
    early = sum(p.pts is not None and p.dts is not None and p.pts < p.dts for p in packets)
    missing = sum(packet.pts is None for packet in packets)
    found = f"{backward} steps back, {early} with PTS before DTS, {missing} without PTS"
    expected = "DTS strictly increasing, PTS at or after it"
    return check("stream.clock", expected, found, passed=not backward + early + missing)


def check_times(
    expected: Sequence[int], expected_base: Fraction, found: Sequence[int | None], scan: OutputScan
) -> list[Check]:
    """Check that every frame is shown at its time after the first frame, and that times increase."""
    if not scan.timed:
        reason = "a raw bitstream states no times"
        return [not_applicable("times.equal", reason), not_applicable("times.increasing", reason)]
    known = [time for time in found if time is not None]
    stuck = sum(later <= earlier for earlier, later in pairwise(known)) + len(found) - len(known)
    no_stuck, held = "no frame at or before the previous one", "each frame is after the previous one"
    increasing = check("times.increasing", no_stuck, stuck, passed=not stuck, held=held)
    return [_check_equal_times(expected, expected_base, known, scan.time_base), increasing]


def _check_equal_times(expected: Sequence[int], expected_base: Fraction, found: Sequence[int], base: Fraction) -> Check:
    exact = (expected_base / base).denominator == 1
    unit = expected_base * base / (expected_base.numerator * base.numerator)  # divides both bases
    by, to = int(expected_base / unit), int(base / unit)
    # Coarser ticks round both the first frame's time and this frame's time, together by one tick at most.
    allowed = 0 if exact else to
    worst, worst_frame, wrong = 0, 0, 0
    for number, (want, have) in enumerate(zip(expected, found, strict=False)):
        error = abs((want - expected[0]) * by - (have - found[0]) * to)
        wrong += error > allowed
        if error > worst:
            worst, worst_frame = error, number
    said = "every time equals the source's" if exact else f"every time within a tick of {float(base * 1000):g} ms"
    off = f"{wrong} frames off, at most {float(worst * unit * 1000):.3f} ms at frame {worst_frame}"
    if len(expected) == len(found):
        return check("times.equal", said, off, passed=not wrong)
    off = off if wrong else "the times that both files state are equal"
    return check("times.equal", f"{said}: {len(expected)} of them", f"{len(found)}; {off}", passed=False)


def picture_digest(frame: VideoFrame) -> int:
    """Return a checksum of the samples of all planes, without the padding of their lines."""
    value = zlib.crc32(f"{frame.format.name} {frame.width}x{frame.height}".encode())
    for lines in plane_bytes(frame):
        value = zlib.crc32(lines.tobytes(), value)
    return value


def wanted_digests(scan: OutputScan) -> frozenset[int]:
    """Return the frames of the sequential decode whose digests ``check_access`` needs."""
    ahead = _ACCESS_FRAMES + _reach(scan)
    return frozenset(frame + step for frame in scan.access_points() for step in range(ahead))


def _reach(scan: OutputScan) -> int:
    """Return by how much a keyframe's place in presentation may exceed its packet's number; 0 if packets have times."""
    return 0 if scan.timed else _PICTURE_BUFFER


def check_access(output: str, scan: OutputScan, digests: Mapping[int, int]) -> Check:
    """Check that decoding from keyframes gives the pictures of the sequential decode; ``digests`` has their digests."""
    points, broken = scan.access_points(), []
    for frame, packet in points.items():
        starts = range(frame, frame + _reach(scan) + 1)
        runs = [[digests[n] for n in range(start, start + _ACCESS_FRAMES) if n in digests] for start in starts]
        if _decode_from(output, scan, packet, len(runs[0])) not in runs:
            broken.append(f"frame {frame}")
    detail = f"{len(points)} of {sum(p.key for p in scan.packets)} keyframes tried"
    found = ", ".join(broken) or "all"
    return check("access.keyframes", "the same pictures from each keyframe", found, passed=not broken, detail=detail)


def _decode_from(output: str, scan: OutputScan, number: int, frames: int) -> list[int]:
    target = scan.packets[number]
    with open_source(output) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        digests: list[int] = []
        try:
            for packet in _from_packet(container, stream, scan, number):
                for frame in packet.decode():
                    leading = scan.timed and frame.pts is not None and target.pts is not None and frame.pts < target.pts
                    if not leading:
                        digests.append(picture_digest(frame))
                if len(digests) >= frames:
                    break
        except av.error.FFmpegError:
            return []
        stream.codec_context.flush_buffers()
        return digests[:frames]


def _from_packet(
    container: InputContainer, stream: VideoStream, scan: OutputScan, number: int
) -> "Iterator[Packet[VideoStream]]":
    """Yield the track's packets from packet ``number`` on, found by seeking or, without times, by counting."""
    target = scan.packets[number]
    if not scan.timed or target.pts is None:
        yield from islice(container.demux(stream), number, None)
        return
    container.seek(min(target.pts, target.pts if target.dts is None else target.dts), stream=stream)
    yield from dropwhile(lambda packet: packet.pts != target.pts or not packet.is_keyframe, container.demux(stream))
