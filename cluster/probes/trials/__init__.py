"""Tries codecs by decoding or encoding one picture."""

from .cases import SAMPLES, SOFTWARE_DECODERS, SOFTWARE_ENCODERS, offered_by_software

__all__ = ["SAMPLES", "SOFTWARE_DECODERS", "SOFTWARE_ENCODERS", "offered_by_software"]
