"""A film to decode: packets in memory for PyNvVideoCodec, ranges of the file for codecfleet."""

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.bitstream import BitStreamFilterContext

from codecfleet import TranscodeSpec, plan_transcode
from codecfleet.actors.decode.decoding import DecodeRange
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.jobs.plan.placing import demand_of

from .failures import CommandFailed

__all__ = ["SEGMENT_S", "Film", "read_film"]

SEGMENT_S = Fraction(2)
_CODECS = {"h264": 4, "hevc": 8}
"""The number of each codec in ``cudaVideoCodec``, by FFmpeg's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """A file's packets in NVDEC's format, and its ranges: one for the whole film, and one for each 2 s."""

    codec: int
    packets: tuple[bytes, ...]
    whole: DecodeRange
    segments: tuple[DecodeRange, ...]
    pictures_in_segments: int
    """The number of pictures that the segments decode; pictures that two segments decode count once."""
    demand: Demand
    """The demand of a job that encodes the film."""

    @property
    def in_order(self) -> tuple[int, ...]:
        """The indices of all packets, once each."""
        return tuple(range(len(self.packets)))

    @property
    def in_segments(self) -> tuple[int, ...]:
        """The indices of the packets that all segments decode, in order; packets past a seam come twice."""
        return tuple(place for range_ in self.segments for place in self._places(range_))

    @property
    def described(self) -> dict[str, int]:
        """Packet counts: of the whole film, and of its segments, which decode packets past seams twice."""
        return {
            "packets": len(self.packets),
            "bytes": self._bytes(self.in_order),
            "segments": len(self.segments),
            "packets_of_segments": len(self.in_segments),
            "bytes_of_segments": self._bytes(self.in_segments),
        }

    def _bytes(self, places: tuple[int, ...]) -> int:
        return sum(len(self.packets[place]) for place in places)

    def _places(self, range_: DecodeRange) -> range:
        first = 0 if range_.entry is None else range_.entry.packet
        last = len(self.packets) - 1 if range_.last_packet is None else range_.last_packet
        return range(first, last + 1)


def read_film(path: Path) -> Film:
    """Read a film of H.264 or HEVC.

    Raises:
        CommandFailed: the film has another codec.
    """
    spec = TranscodeSpec(source=str(path.resolve()), output="out.mkv", segment_s=SEGMENT_S, force=True)
    plan = plan_transcode(spec)
    works = [plan.work("bench", segment, segment, 0) for segment in range(len(plan.segments))]
    whole = replace(works[0].decode, last_packet=None, expected_ticks=(), expected_packets=None)
    with av.open(whole.source) as container:
        stream = container.streams[whole.stream_index]
        codec = stream.codec_context.name
        if codec not in _CODECS:
            message = f"{path.name} is {codec}, and this benchmark takes {' or '.join(_CODECS)}"
            raise CommandFailed(message)
        packets = _annex_b(container, stream, f"{codec}_mp4toannexb")
    return Film(
        codec=_CODECS[codec],
        packets=packets,
        whole=whole,
        segments=tuple(work.decode for work in works),
        pictures_in_segments=plan.frames,
        demand=demand_of(plan),
    )


def _annex_b(container: Any, stream: Any, name: str) -> tuple[bytes, ...]:
    """Return a track's packets with start codes, and with parameter sets before each keyframe."""
    filter_ = BitStreamFilterContext(name, stream)
    packets = [each for packet in container.demux(stream) if packet.size for each in filter_.filter(packet)]
    return tuple(bytes(packet) for packet in (*packets, *filter_.filter(None)) if packet.size)
