"""NVDEC sessions, and what they can decode."""

from .packet_prep import Feeder

__all__ = ["Feeder"]
