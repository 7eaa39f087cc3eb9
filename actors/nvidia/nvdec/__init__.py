"""NVDEC sessions, and the tracks that they can decode."""

from .packet_prep import Feeder

__all__ = ["Feeder"]
