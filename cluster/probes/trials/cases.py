"""What is tried of every machine, as data: what people have most comes first, because the time is limited."""

from dataclasses import dataclass
from typing import Final

from ....actors.encode.profiles import PROFILES
from ....actors.encode.settings import Codec as OfferedCodec
from ..report.engines import CodecCase, Direction, MediaCodec

TRIAL_WIDTH: Final = 256
TRIAL_HEIGHT: Final = 160
"""Above every engine's smallest picture: 144x144 for HEVC's decoder, 145x49 and 129x33 for NVENC's H.264 and HEVC."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample format of one codec, and FFmpeg's names for its pixels and for the encoder that makes a bitstream.

    ``encoder`` is "" where the bitstream is one of ``streams.py``, or where there is none (VC-1).
    """

    codec: MediaCodec
    bit_depth: int
    chroma: str
    profile: str
    pix_fmt: str
    encoder: str = ""

    @property
    def name(self) -> str:
        """Return it as people write it: ``hevc 10-bit 4:2:0``."""
        return f"{self.codec.value} {self.bit_depth}-bit {self.chroma}"

    def case(self, direction: Direction) -> CodecCase:
        """Return the case that it is in one direction."""
        return CodecCase(self.codec, direction, self.chroma, self.bit_depth)


SAMPLES: Final = (
    Sample(MediaCodec.H264, 8, "4:2:0", "high", "yuv420p", "libx264"),
    Sample(MediaCodec.HEVC, 8, "4:2:0", "main", "yuv420p", "libx265"),
    Sample(MediaCodec.HEVC, 10, "4:2:0", "main 10", "yuv420p10le", "libx265"),
    Sample(MediaCodec.AV1, 8, "4:2:0", "main", "yuv420p", "libsvtav1"),
    Sample(MediaCodec.VP9, 8, "4:2:0", "profile 0", "yuv420p", "libvpx-vp9"),
    Sample(MediaCodec.AV1, 10, "4:2:0", "main", "yuv420p10le", "libsvtav1"),
    Sample(MediaCodec.MPEG2, 8, "4:2:0", "main", "yuv420p", "mpeg2video"),
    Sample(MediaCodec.VP8, 8, "4:2:0", "", "yuv420p", "libvpx"),
    Sample(MediaCodec.VP9, 10, "4:2:0", "profile 2", "yuv420p10le"),
    Sample(MediaCodec.JPEG, 8, "4:2:0", "baseline", "yuvj420p", "mjpeg"),
    Sample(MediaCodec.H264, 10, "4:2:0", "high 10", "yuv420p10le", "libx264"),
    Sample(MediaCodec.H264, 8, "4:2:2", "high 4:2:2", "yuv422p", "libx264"),
    Sample(MediaCodec.H264, 10, "4:2:2", "high 4:2:2", "yuv422p10le", "libx264"),
    Sample(MediaCodec.HEVC, 10, "4:2:2", "main 4:2:2 10", "yuv422p10le", "libx265"),
    Sample(MediaCodec.HEVC, 8, "4:4:4", "main 4:4:4", "yuv444p", "libx265"),
    Sample(MediaCodec.HEVC, 10, "4:4:4", "main 4:4:4 10", "yuv444p10le", "libx265"),
    Sample(MediaCodec.HEVC, 8, "4:2:2", "main 4:2:2 10", "yuv422p", "libx265"),
    Sample(MediaCodec.HEVC, 12, "4:2:0", "main 12", "yuv420p12le", "libx265"),
    Sample(MediaCodec.HEVC, 12, "4:2:2", "main 4:2:2 12", "yuv422p12le", "libx265"),
    Sample(MediaCodec.HEVC, 12, "4:4:4", "main 4:4:4 12", "yuv444p12le", "libx265"),
    Sample(MediaCodec.MPEG4, 8, "4:2:0", "simple", "yuv420p", "mpeg4"),
    Sample(MediaCodec.VC1, 8, "4:2:0", "advanced", "yuv420p"),
    Sample(MediaCodec.VP9, 12, "4:2:0", "profile 2", "yuv420p12le"),
    Sample(MediaCodec.H264, 8, "4:4:4", "high 4:4:4 predictive", "yuv444p", "libx264"),
    Sample(MediaCodec.H264, 10, "4:4:4", "high 4:4:4 predictive", "yuv444p10le", "libx264"),
    Sample(MediaCodec.VP9, 8, "4:4:4", "profile 1", "yuv444p", "libvpx-vp9"),
    Sample(MediaCodec.VP9, 8, "4:2:2", "profile 1", "yuv422p", "libvpx-vp9"),
    Sample(MediaCodec.VP9, 10, "4:4:4", "profile 3", "yuv444p10le"),
    Sample(MediaCodec.VP9, 10, "4:2:2", "profile 3", "yuv422p10le"),
    Sample(MediaCodec.VP9, 12, "4:4:4", "profile 3", "yuv444p12le"),
    Sample(MediaCodec.VP9, 12, "4:2:2", "profile 3", "yuv422p12le"),
    Sample(MediaCodec.AV1, 8, "4:4:4", "high", "yuv444p"),
    Sample(MediaCodec.AV1, 10, "4:4:4", "high", "yuv444p10le"),
    Sample(MediaCodec.AV1, 8, "4:2:2", "professional", "yuv422p"),
    Sample(MediaCodec.AV1, 10, "4:2:2", "professional", "yuv422p10le"),
    Sample(MediaCodec.AV1, 12, "4:2:0", "professional", "yuv420p12le"),
    Sample(MediaCodec.AV1, 12, "4:2:2", "professional", "yuv422p12le"),
    Sample(MediaCodec.AV1, 12, "4:4:4", "professional", "yuv444p12le"),
    Sample(MediaCodec.JPEG, 8, "4:2:2", "baseline", "yuvj422p", "mjpeg"),
    Sample(MediaCodec.JPEG, 8, "4:4:4", "baseline", "yuvj444p", "mjpeg"),
    Sample(MediaCodec.MPEG2, 8, "4:2:2", "4:2:2", "yuv422p", "mpeg2video"),
    Sample(MediaCodec.H264, 8, "4:0:0", "high", "gray", "libx264"),
    Sample(MediaCodec.H264, 10, "4:0:0", "high 10", "gray10le", "libx264"),
    Sample(MediaCodec.HEVC, 8, "4:0:0", "monochrome", "gray", "libx265"),
    Sample(MediaCodec.HEVC, 10, "4:0:0", "monochrome 10", "gray10le", "libx265"),
    Sample(MediaCodec.HEVC, 12, "4:0:0", "monochrome 12", "gray12le", "libx265"),
    Sample(MediaCodec.AV1, 8, "4:0:0", "main", "gray"),
    Sample(MediaCodec.AV1, 10, "4:0:0", "main", "gray10le"),
    Sample(MediaCodec.AV1, 12, "4:0:0", "professional", "gray12le"),
)
"""Every sample format that is asked for, the worthiest first."""

SOFTWARE_DECODERS: Final = {
    MediaCodec.H264: "h264",
    MediaCodec.HEVC: "hevc",
    MediaCodec.AV1: "libdav1d",
    MediaCodec.VP9: "vp9",
    MediaCodec.VP8: "vp8",
    MediaCodec.MPEG2: "mpeg2video",
    MediaCodec.MPEG4: "mpeg4",
    MediaCodec.VC1: "vc1",
    MediaCodec.JPEG: "mjpeg",
}
"""FFmpeg's decoder for each codec, as PyAV's wheels carry it."""

SOFTWARE_ENCODERS: Final = {MediaCodec[codec.name]: PROFILES[codec].implementation for codec in OfferedCodec}
"""The software encoders that codecfleet offers; the others only make bitstreams for trials."""

_OFFERED_PIX_FMTS: Final = {
    (profile.implementation, pix_fmt) for profile in PROFILES.values() for pix_fmt in profile.pix_fmts
}
_NVDEC_CHROMAS: Final = {
    MediaCodec.H264: ("4:2:0", "4:2:2"),
    MediaCodec.HEVC: ("4:2:0", "4:2:2", "4:4:4"),
    MediaCodec.JPEG: ("4:2:0",),
}


def offered_by_software(sample: Sample) -> bool:
    """Return whether codecfleet encodes this sample format in software."""
    return (sample.encoder, sample.pix_fmt) in _OFFERED_PIX_FMTS


_SAMPLE_OF: Final = {(sample.codec, sample.chroma, sample.bit_depth): sample for sample in SAMPLES}


def _may_be_nvdec(sample: Sample) -> bool:
    """Leave out what no generation's NVDEC decodes (NVDEC application note): asking costs a CUDA context each."""
    twelve_bits_in_main = sample.codec is MediaCodec.AV1 and sample.bit_depth == 12  # noqa: PLR2004 - bits
    return sample.chroma in _NVDEC_CHROMAS.get(sample.codec, ("4:2:0",)) and not twelve_bits_in_main


NVDEC_CASES: Final = tuple(sample for sample in SAMPLES if _may_be_nvdec(sample))
"""What some generation's NVDEC decodes."""


@dataclass(frozen=True, slots=True)
class NvencCase:
    """A sample format that some generation's NVENC encodes.

    ``surface`` is PyNvVideoCodec's input format, ``capability`` a key of ``GetEncoderCaps``: "" where all take it.
    """

    sample: Sample
    surface: str
    capability: str = ""


def _nvenc(codec: MediaCodec, bit_depth: int, chroma: str, surface: str, capability: str = "") -> NvencCase:
    return NvencCase(_SAMPLE_OF[codec, chroma, bit_depth], surface, capability)


NVENC_CASES: Final = (
    _nvenc(MediaCodec.H264, 8, "4:2:0", "NV12"),
    _nvenc(MediaCodec.HEVC, 8, "4:2:0", "NV12"),
    _nvenc(MediaCodec.HEVC, 10, "4:2:0", "P010", "support_10bit_encode"),
    _nvenc(MediaCodec.AV1, 8, "4:2:0", "NV12"),
    _nvenc(MediaCodec.AV1, 10, "4:2:0", "P010", "support_10bit_encode"),
    _nvenc(MediaCodec.H264, 8, "4:4:4", "YUV444", "support_yuv444_encode"),
    _nvenc(MediaCodec.HEVC, 8, "4:4:4", "YUV444", "support_yuv444_encode"),
    _nvenc(MediaCodec.HEVC, 10, "4:4:4", "YUV444_16BIT", "support_yuv444_encode"),
    _nvenc(MediaCodec.H264, 10, "4:2:0", "P010", "support_10bit_encode"),
    _nvenc(MediaCodec.H264, 8, "4:2:2", "NV16", "support_yuv422_encode"),
    _nvenc(MediaCodec.HEVC, 8, "4:2:2", "NV16", "support_yuv422_encode"),
    _nvenc(MediaCodec.H264, 10, "4:2:2", "P210", "support_yuv422_encode"),
    _nvenc(MediaCodec.HEVC, 10, "4:2:2", "P210", "support_yuv422_encode"),
)
"""What some generation's NVENC encodes, the worthiest first."""
