"""Watching devices for Xid errors and other events, without ever waiting for one.

The driver keeps events for an event set from the moment a device is registered with it, so a watch belongs to what
lives long: it is opened once, polled now and then, and closed. NVML API Reference Manual, "Event Handling Methods".
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ..report.absence import Absence, Maybe, Unavailable
from .calls import NvmlLike, ask_named

XID = 0x8
DOUBLE_BIT_ECC = 0x2
MIG_CHANGED = 0x100
GPU_UNAVAILABLE = 0x4000
RECOVERY_ACTION_CHANGED = 0x8000

EVENT_NAMES: dict[int, str] = {
    XID: "Xid error",
    DOUBLE_BIT_ECC: "double-bit ECC error",
    MIG_CHANGED: "MIG configuration changed",
    0x400: "memory retired",
    0x800: "memory retirement failed",
    0x1000: "poisoned data contained",
    0x2000: "poisoned data not contained",
    GPU_UNAVAILABLE: "GPU unavailable",
    RECOVERY_ACTION_CHANGED: "recovery action changed",
}
WANTED = sum(EVENT_NAMES)

NO_INSTANCE = 0xFFFFFFFF
EVENTS_PER_POLL = 1000  # a storm of events must not keep a poll from returning


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An event of a device. ``xid`` is set for Xid errors, the instances where it hit one MIG slice."""

    uuid: str
    name: str
    xid: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class DeviceWatch:
    """An open watch over devices. ``unwatched`` says of which devices no event will come, and why."""

    def __init__(
        self, nvml: NvmlLike, event_set: Maybe[Any], uuids: Mapping[int, str], unwatched: Mapping[str, Unavailable]
    ) -> None:
        self.unwatched = dict(unwatched)
        self.failure: Unavailable | None = None
        self._nvml = nvml
        self._event_set = event_set
        self._uuids = dict(uuids)

    def poll(self) -> tuple[DeviceEvent, ...]:
        """Return what happened since the last poll; never waits, never raises.

        When the driver refuses, the events so far are returned and ``failure`` says why; the watch is then of no use
        and must be opened again.
        """
        events: list[DeviceEvent] = []
        while self._uuids and self.failure is None and len(events) < EVENTS_PER_POLL:
            data = ask_named(self._nvml, "nvmlEventSetWait_v2", self._event_set, 0)
            if isinstance(data, Unavailable):
                self.failure = None if data.absence is Absence.TIMED_OUT else data
                break
            events.append(self._event(data))
        return tuple(events)

    def close(self) -> None:
        """Give the event set back; polling afterwards returns nothing."""
        self._uuids.clear()
        event_set, self._event_set = self._event_set, Unavailable(Absence.NOT_FOUND, "the watch is closed")
        if not isinstance(event_set, Unavailable):
            ask_named(self._nvml, "nvmlEventSetFree", event_set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _event(self, data: Any) -> DeviceEvent:
        kind = int(data.eventType)
        is_xid = kind == XID
        return DeviceEvent(
            # By its address, because a GPU that fell off the bus can no longer be asked for its UUID.
            uuid=self._uuids.get(_address(data.device), ""),
            name=EVENT_NAMES.get(kind, f"event 0x{kind:x}"),
            xid=int(data.eventData) if is_xid else None,
            gpu_instance=_instance(data.gpuInstanceId),
            compute_instance=_instance(data.computeInstanceId),
        )


def watch_events(nvml: NvmlLike, handles: Mapping[str, Any]) -> DeviceWatch:
    """Start watching devices, given by what they shall be called (UUID) and their handles; never raises.

    The library must stay initialised while the watch is open.
    """
    event_set: Maybe[Any] = ask_named(nvml, "nvmlEventSetCreate")
    if isinstance(event_set, Unavailable):
        return DeviceWatch(nvml, event_set, {}, dict.fromkeys(handles, event_set))
    uuids: dict[int, str] = {}
    unwatched: dict[str, Unavailable] = {}
    for uuid, handle in handles.items():
        refused = _register(nvml, event_set, handle)
        if refused is None:
            uuids[_address(handle)] = uuid
        else:
            unwatched[uuid] = refused
    return DeviceWatch(nvml, event_set, uuids, unwatched)


def _register(nvml: NvmlLike, event_set: object, handle: object) -> Unavailable | None:
    supported: Maybe[int] = ask_named(nvml, "nvmlDeviceGetSupportedEventTypes", handle)
    if isinstance(supported, Unavailable):
        return supported
    if not supported & WANTED:
        return Unavailable(Absence.NOT_SUPPORTED, "this device reports no events")
    registered = ask_named(nvml, "nvmlDeviceRegisterEvents", handle, supported & WANTED, event_set)
    return registered if isinstance(registered, Unavailable) else None


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _instance(number: int) -> int | None:
    return None if int(number) == NO_INSTANCE else int(number)
