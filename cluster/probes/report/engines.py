"""Engines, codecs and results of trials, as probes, inventory and placement use them."""

from dataclasses import dataclass
from enum import Enum


class Engine(Enum):
    """A unit of a device with a fixed function, or the processor, which runs software codecs."""

    NVDEC = "nvdec"
    NVENC = "nvenc"
    NVJPG = "nvjpg"
    OFA = "ofa"
    DLA = "dla"
    CPU = "cpu"


MEDIA_ENGINES = (Engine.NVDEC, Engine.NVENC)
"""The engines that trials test, and whose use drivers report."""


class Direction(Enum):
    """Decoding or encoding."""

    DECODE = "decode"
    ENCODE = "encode"


class How(Enum):
    """How a value is known, the most reliable way first."""

    TRIED = "tried"  #: a real frame was decoded or encoded
    KIND = "kind"  #: another device of the same model was tried
    ASKED = "asked"  #: the driver reports the value (GetDecoderCaps, MIG attributes)
    DOCUMENTED = "documented"  #: the value is in a table of documented values
    SIMULATED = "simulated"  #: a simulated fleet has the value


class MediaCodec(Enum):
    """A codec that at least one engine decodes or encodes."""

    H264 = "h264"
    HEVC = "hevc"
    AV1 = "av1"
    VP9 = "vp9"
    VP8 = "vp8"
    MPEG2 = "mpeg2"
    MPEG4 = "mpeg4"
    VC1 = "vc1"
    JPEG = "jpeg"
    OTHER = "other"  #: any other codec; libavcodec may decode it, but no device does


@dataclass(frozen=True, slots=True)
class CodecCase:
    """One direction, codec and sample format; ``chroma`` is "4:2:0", "4:2:2", "4:4:4" or "4:0:0"."""

    codec: MediaCodec
    direction: Direction
    chroma: str = "4:2:0"
    bit_depth: int = 8

    @property
    def name(self) -> str:
        """Return the case's readable name: ``hevc 10-bit 4:2:0 decode``."""
        return f"{self.codec.value} {self.bit_depth}-bit {self.chroma} {self.direction.value}"


@dataclass(frozen=True, slots=True)
class EngineCount:
    """How many engines of a kind a device or slice has, and how that is known."""

    engine: Engine
    count: int
    how: How


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one engine's trial of one case. Sizes are in pixels."""

    case: CodecCase
    engine: Engine
    implementation: str  # "nvdec", "nvenc" or the software codec
    works: bool
    how: How
    profile: str = ""
    max_width: int | None = None
    max_height: int | None = None
    engines: int | None = None  # how many such engines the driver reports; None if unknown
    reason: str = ""  # why the case does not work, in one sentence; "" if it works
    fix: str = ""  # the fix, in one sentence
