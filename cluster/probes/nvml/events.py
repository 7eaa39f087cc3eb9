"""Watching devices for Xid errors without ever waiting for one (NVML API Reference Manual, "Event Handling Methods").

The driver keeps events for an event set from the moment a device is registered with it, so a watch belongs to a
long-lived object: it is opened once, polled now and then, and closed.
"""

import ctypes
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..report.absence import Absence, Maybe, Unavailable
from .calls import NvmlLike, ask_named

XID = 0x8
NO_INSTANCE = 0xFFFFFFFF
EVENTS_PER_POLL = 1000  # a flood of events must not keep a poll from returning


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An Xid error of a device; ``gpu_instance`` is set if it hit one MIG slice."""

    uuid: str
    xid: int
    gpu_instance: int | None


class DeviceWatch(AbstractContextManager["DeviceWatch"]):
    """An open watch over devices. ``unwatched`` names the devices without events, and why."""

    def __init__(
        self, nvml: NvmlLike, event_set: Maybe[Any], uuids: Mapping[int, str], unwatched: Mapping[str, Unavailable]
    ) -> None:
        self.unwatched = dict(unwatched)
        self.failure: Unavailable | None = None
        self._nvml = nvml
        self._event_set = event_set
        self._uuids = dict(uuids)

    def poll(self) -> tuple[XidEvent, ...]:
        """Return what happened since the last poll; never waits, never raises.

        When the driver refuses, the events so far are returned and ``failure`` says why; the watch is then useless and
        must be opened again.
        """
        events: list[XidEvent] = []
        while self._uuids and self.failure is None and len(events) < EVENTS_PER_POLL:
            data = ask_named(self._nvml, "nvmlEventSetWait_v2", self._event_set, 0)
            if isinstance(data, Unavailable):
                self.failure = None if data.absence is Absence.TIMED_OUT else data
                break
            # By its address, because a GPU that fell off the bus can no longer be asked for its UUID.
            uuid, instance = self._uuids.get(_address(data.device), ""), int(data.gpuInstanceId)
            events.append(XidEvent(uuid, int(data.eventData), None if instance == NO_INSTANCE else instance))
        return tuple(events)

    def close(self) -> None:
        """Free the event set; polling afterwards returns nothing."""
        self._uuids.clear()
        event_set, self._event_set = self._event_set, Unavailable(Absence.NOT_FOUND, "the watch is closed")
        if not isinstance(event_set, Unavailable):
            ask_named(self._nvml, "nvmlEventSetFree", event_set)

    def __exit__(self, *_: object) -> None:
        self.close()


def watch_events(nvml: NvmlLike, handles: Mapping[str, Any]) -> DeviceWatch:
    """Start watching devices, given by name and handle, in a library that stays initialised; never raises."""
    event_set: Maybe[Any] = ask_named(nvml, "nvmlEventSetCreate")
    if isinstance(event_set, Unavailable):
        return DeviceWatch(nvml, event_set, {}, dict.fromkeys(handles, event_set))
    refused = {uuid: _register(nvml, event_set, handle) for uuid, handle in handles.items()}
    uuids = {_address(handle): uuid for uuid, handle in handles.items() if refused[uuid] is None}
    return DeviceWatch(nvml, event_set, uuids, {uuid: reason for uuid, reason in refused.items() if reason})


def _register(nvml: NvmlLike, event_set: object, handle: object) -> Unavailable | None:
    supported: Maybe[int] = ask_named(nvml, "nvmlDeviceGetSupportedEventTypes", handle)
    if isinstance(supported, Unavailable):
        return supported
    if not supported & XID:
        return Unavailable(Absence.NOT_SUPPORTED, "this device reports no Xid errors")
    registered = ask_named(nvml, "nvmlDeviceRegisterEvents", handle, XID, event_set)
    return registered if isinstance(registered, Unavailable) else None


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
