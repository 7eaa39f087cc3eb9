"""Values in the reports of probes."""

from .absence import Absence, Maybe, Unavailable
from .device_kinds import DeviceKind
from .device_report import CodecSession, DeviceProcess
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
    "Trial",
    "Unavailable",
]
