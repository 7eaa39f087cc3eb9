"""The values that probes return."""

from .absence import Absence, Maybe, NotApplicable
from .device_report import CodecSession, DeviceKind, DeviceProcess
from .engines import Codec, CodecCase, Direction, Engine, How, Trial

__all__ = [
    "Absence",
    "Codec",
    "CodecCase",
    "CodecSession",
    "DeviceKind",
    "DeviceProcess",
    "Direction",
    "Engine",
    "How",
    "Maybe",
    "NotApplicable",
    "Trial",
]
