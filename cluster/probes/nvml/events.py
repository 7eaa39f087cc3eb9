"""Watches devices for Xid errors without blocking (NVML API Reference Manual, "Event Handling Methods").

The driver keeps events only while the device is registered with an event set, so a watch stays open between polls.
"""

import ctypes
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable, known
from .calls import NvmlLike, ask_named

XID = 0x8
NO_INSTANCE = 0xFFFFFFFF
# The most events that one poll returns, so that a flood of events cannot occupy the poll for ever.
EVENTS_PER_POLL = 1000


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An Xid error of a device; ``gpu_instance`` is the MIG GPU instance in which it occurred, if any."""

    device: str  # the name under which the device is watched
    xid: int
    gpu_instance: int | None


class DeviceWatch(AbstractContextManager["DeviceWatch"]):
    """An open watch over devices; ``names`` maps the address of each device's handle to the device's name."""

    def __init__(self, nvml: NvmlLike, event_set: Maybe[Any], names: Mapping[int, str]) -> None:
        self.failure: Unavailable | None = None
        self._nvml = nvml
        self._event_set = event_set
        self._names = dict(names)

    def poll(self) -> tuple[XidEvent, ...]:
        """Return the events since the last poll; never waits, never raises.

        If the driver refuses, ``failure`` says why, and a new watch must be opened.
        """
        events: list[XidEvent] = []
        while self._names and self.failure is None and len(events) < EVENTS_PER_POLL:
            data = ask_named(self._nvml, "nvmlEventSetWait_v2", self._event_set, 0)
            if isinstance(data, Unavailable):
                self.failure = None if data.absence is Absence.TIMED_OUT else data
                break
            # Devices are found by address, because a GPU that fell off the bus no longer answers with its UUID.
            name, instance = self._names.get(_address(data.device), ""), int(data.gpuInstanceId)
            events.append(XidEvent(name, int(data.eventData), None if instance == NO_INSTANCE else instance))
        return tuple(events)

    def close(self) -> None:
        """Free the event set; later polls return nothing."""
        self._names.clear()
        event_set, self._event_set = self._event_set, Unavailable(Absence.NOT_FOUND, "the watch is closed")
        if not isinstance(event_set, Unavailable):
            ask_named(self._nvml, "nvmlEventSetFree", event_set)

    def __exit__(self, *_: object) -> None:
        self.close()


def watch_events(nvml: NvmlLike, handles: Mapping[str, Any]) -> DeviceWatch:
    """Watch the devices ({name: handle}) that report Xid errors, while the library stays initialised; never raises."""
    event_set: Maybe[Any] = ask_named(nvml, "nvmlEventSetCreate")
    watched = {}
    for name, handle in handles.items() if not isinstance(event_set, Unavailable) else ():
        events = known(ask_named(nvml, "nvmlDeviceGetSupportedEventTypes", handle), 0)
        if events & XID and not isinstance(
            ask_named(nvml, "nvmlDeviceRegisterEvents", handle, XID, event_set), Unavailable
        ):
            watched[_address(handle)] = name
    return DeviceWatch(nvml, event_set, watched)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
