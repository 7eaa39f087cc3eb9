"""The values that probes return."""

from .absence import Absence, Maybe, NotApplicable
from .device_report import CodecSession, DeviceKind, DeviceProcess
from .engines import CodecCase, Direction, Engine, How, MediaCodec, Trial

__all__ = [
    "Absence",
    "CodecCase",
    "CodecSession",
    "DeviceKind",
    "DeviceProcess",
    "Direction",
    "Engine",
    "How",
    "Maybe",
    "MediaCodec",
    "NotApplicable",
    "Trial",
]
