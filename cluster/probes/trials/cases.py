"""The cases to try on every machine, from ``configs/trials.toml``."""

from dataclasses import dataclass
from typing import Final

from ....actors.encode.profiles import PROFILES
from ....actors.encode.settings import Codec as OfferedCodec
from ..report.engines import CodecCase, Direction, MediaCodec
from ..report.tables import read_tables

TRIAL_WIDTH: Final = 256
TRIAL_HEIGHT: Final = 160
"""The trial picture is larger than each engine's smallest picture: 144x144 for HEVC's decoder, 145x49 and 129x33 for
NVENC's H.264 and HEVC."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample format of one codec."""

    codec: MediaCodec
    bit_depth: int
    chroma: str
    profile: str
    pix_fmt: str  #: FFmpeg's name of the pixel format
    #: the FFmpeg encoder that makes a bitstream; "" if there is none, or if the table has a bitstream
    encoder: str = ""

    @property
    def name(self) -> str:
        """Return the sample's readable name: ``hevc 10-bit 4:2:0``."""
        return f"{self.codec.value} {self.bit_depth}-bit {self.chroma}"

    def case(self, direction: Direction) -> CodecCase:
        """Return the sample's case for one direction."""
        return CodecCase(self.codec, direction, self.chroma, self.bit_depth)


_TABLES: Final = read_tables("trials.toml")
SAMPLES: Final = tuple(Sample(MediaCodec(codec), *row) for codec, *row in _TABLES["samples"])
"""Every sample format to try, the most important first."""
SOFTWARE_DECODERS: Final[dict[MediaCodec, str]] = {
    MediaCodec(codec): name for codec, name in _TABLES["software_decoders"].items()
}
"""The FFmpeg decoder for each codec."""
SOFTWARE_ENCODERS: Final = {MediaCodec[codec.name]: PROFILES[codec].implementation for codec in OfferedCodec}
"""The software encoders that jobs use. Other encoders only make bitstreams for trials."""

_OFFERED_PIX_FMTS: Final = {
    (profile.implementation, pix_fmt) for profile in PROFILES.values() for pix_fmt in profile.pix_fmts
}


def offered_by_software(sample: Sample) -> bool:
    """Return whether codecfleet encodes this sample format in software."""
    return (sample.encoder, sample.pix_fmt) in _OFFERED_PIX_FMTS


BY_NAME: Final = {sample.name: sample for sample in SAMPLES}


def _may_be_nvdec(sample: Sample) -> bool:
    """Whether at least one generation of NVDEC decodes the format (NVDEC application note).

    Other formats are not tried, because each trial costs a CUDA context.
    """
    is_professional_av1 = sample.codec is MediaCodec.AV1 and sample.profile == "professional"
    chromas = _TABLES["nvdec_chromas"].get(sample.codec.value, ("4:2:0",))
    return sample.chroma in chromas and not is_professional_av1


NVDEC_CASES: Final = tuple(sample for sample in SAMPLES if _may_be_nvdec(sample))
"""The formats that at least one generation of NVDEC decodes."""

NVENC_SURFACES: Final[dict[tuple[str, int], tuple[str, str]]] = {
    (chroma, depth): (surface, capability) for chroma, depth, surface, capability in _TABLES["nvenc_surfaces"]
}
"""The input format of PyNvVideoCodec for each chroma and depth, with the key in ``GetEncoderCaps`` that allows the
format ("" if always allowed)."""
NVENC_CASES: Final = tuple(BY_NAME[name] for name in _TABLES["nvenc"])
"""The formats that at least one generation of NVENC encodes, the most important first."""
