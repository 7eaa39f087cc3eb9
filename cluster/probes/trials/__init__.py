"""One picture decoded or encoded, to see whether a codec works."""

from .cases import SAMPLES, SOFTWARE_DECODERS, SOFTWARE_ENCODERS, offered_by_software

__all__ = ["SAMPLES", "SOFTWARE_DECODERS", "SOFTWARE_ENCODERS", "offered_by_software"]
