"""One picture decoded or encoded, to see whether a codec works."""

from .cases import (
    NVDEC_CASES,
    NVENC_CASES,
    SAMPLES,
    SOFTWARE_DECODERS,
    SOFTWARE_ENCODERS,
    TRIAL_HEIGHT,
    TRIAL_WIDTH,
    offered_by_software,
)
from .gpu import surface
from .software import TrialStream, decode_luma

__all__ = [
    "NVDEC_CASES",
    "NVENC_CASES",
    "SAMPLES",
    "SOFTWARE_DECODERS",
    "SOFTWARE_ENCODERS",
    "TRIAL_HEIGHT",
    "TRIAL_WIDTH",
    "TrialStream",
    "decode_luma",
    "offered_by_software",
    "surface",
]
