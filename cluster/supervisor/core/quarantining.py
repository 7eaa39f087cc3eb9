"""Puts devices into quarantine, by their identity, and brings back those that pass a trial."""

from collections.abc import Iterable
from dataclasses import replace

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.engines import Engine
from ..state.events import Effect, KeepQuarantines, Note, QuarantinesRecalled
from ..state.messages import DeviceFault
from ..state.nodes import NodeBook
from ..state.quarantine import (
    Cause,
    DeviceFailure,
    DeviceRecord,
    Quarantine,
    due_now,
    is_due,
    put_away,
    suspects,
    trial_failed,
    trial_passed,
    why_faulty,
    why_guilty,
    why_not_passed,
    why_suspect,
    with_doubt,
    with_fault,
)
from ..state.state import SupervisorState
from ..state.stations import StationState


def quarantine(state: SupervisorState, book: NodeBook, device: Device, found: Quarantine) -> list[Effect]:
    """Give a device no more work until it passes a trial; replace the process that has it.

    What failed in that process may have left its CUDA or cuDLA state unusable.
    """
    before = book.record_of(device.device)
    after = put_away(before, found, device, state.settings.quarantine_s)
    if after == before:
        return []
    _recycle(state, device, f"its device is in quarantine: {found.reason}", holding=False)
    is_new = before.quarantine is None
    notes = _noted(state, LogAction.DEVICE_QUARANTINED, device, f"is in quarantine: {found.reason}") if is_new else []
    return [*notes, *_changed(state, book, device, after)]


def begin_trials(state: SupervisorState, now_s: float) -> list[Effect]:
    """Probe the nodes of quarantined devices whose wait is over, and that seem well."""
    if not any(is_due(record, now_s) for record in state.nodes.quarantines.values()):
        return []
    return [
        book.probe_again(now_s)
        for book in state.nodes
        if not book.is_probing(now_s)
        and book.is_polled
        and any(_may_be_tried(state, book, each, now_s) for each in book.gpus)
    ]


def take_trials(state: SupervisorState, book: NodeBook, now_s: float) -> list[Effect]:
    """Bring back the devices that passed the probe that a node has just answered; others wait longer."""
    effects: list[Effect] = []
    for device in book.gpus:
        record = book.record_of(device.device)
        if record.quarantine is None and device.state is DeviceState.QUARANTINED:
            found = Quarantine(cause=Cause.POLL, reason=device.state_reason, since_s=now_s)
            effects += quarantine(state, book, device, found)
        elif record.suspicion and record.quarantine is None:
            reason = why_guilty(record, device)
            book.set_record(device.device, replace(record, suspicion=""))
            failed = frozenset({Engine.NVDEC})
            found = Quarantine(cause=Cause.FAULTS, reason=reason, since_s=now_s, engines=failed)
            effects += quarantine(state, book, device, found) if reason else []
        elif record.quarantine is not None and _may_be_tried(state, book, device, now_s):
            reason = why_not_passed(record.quarantine, device)
            effects += _failed(state, book, device, reason, now_s) if reason else _passed(state, book, device, now_s)
    return effects


def miss_trials(state: SupervisorState, book: NodeBook, reason: str, now_s: float) -> list[Effect]:
    """A node's probe did not answer: none of its quarantined devices has passed."""
    tried = [device for device in book.gpus if _may_be_tried(state, book, device, now_s)]
    return [effect for device in tried for effect in _failed(state, book, device, reason, now_s)]


def end_rests(state: SupervisorState, book: NodeBook, now_s: float) -> list[Effect]:
    """A user trusts a node's devices again: the next probe decides."""
    found = [device for device in book.gpus if book.quarantine_of(device.device) is not None]
    changes = [_changed(state, book, device, due_now(book.record_of(device.device), now_s)) for device in found]
    return changes[-1] if changes else []


def take_faults(state: SupervisorState, faults: Iterable[DeviceFault], now_s: float) -> list[Effect]:
    """Count what clients report of workers' devices; several different files show that it is the device."""
    effects: list[Effect] = []
    for fault in faults:
        station = state.stations.get(fault.worker.station)
        book = None if station is None else state.node_of(station)
        device = None if station is None or book is None else book.gpu(station.took.get(fault.worker.epoch, ""))
        if book is not None and device is not None and book.quarantine_of(device.device) is None:
            failure = DeviceFailure(file=fault.file, is_wrong=fault.is_wrong, reason=fault.reason, at_s=now_s)
            effects += (_take_doubt if fault.is_doubtful else _take_fault)(state, book, device, failure)
    return effects


def _take_fault(state: SupervisorState, book: NodeBook, device: Device, fault: DeviceFailure) -> list[Effect]:
    record = with_fault(book.record_of(device.device), fault)
    book.set_record(device.device, record)
    reason = why_faulty(record.faults, suspects(book.quarantines.values()))
    found = Quarantine(cause=Cause.FAULTS, reason=reason, since_s=fault.at_s)
    return quarantine(state, book, device, found) if reason else []


def _take_doubt(state: SupervisorState, book: NodeBook, device: Device, doubt: DeviceFailure) -> list[Effect]:
    """Try a device that is in doubt for several files: only a trial tells it from odd files and bad neighbours."""
    record = with_doubt(book.record_of(device.device), doubt)
    reason = "" if book.is_probing(doubt.at_s) else why_suspect(record)
    if not reason:
        book.set_record(device.device, record)
        return []
    book.set_record(device.device, replace(record, doubts=(), suspicion=reason, tried_s=doubt.at_s))
    notes = _noted(state, LogAction.DEVICE_TRIED, device, f"is tried: {reason}")
    return [*notes, book.probe_again(doubt.at_s, from_scratch=False)]


def resolved(book: NodeBook, identity: str) -> str:
    """Return the inventory's name of a GPU that its worker could only call by number or bus id, since it is lost."""
    shown = book.known.shown
    for gpu in () if shown is None else shown.gpus:
        if identity in {f"{book.ray.node}/{gpu.index}", f"{book.ray.node}/{gpu.bus_id}"} and not gpu.is_cut:
            return gpu.uuid if gpu.uuid and not gpu.is_guest else identity
    return identity


def named(state: SupervisorState, device: Device) -> str:
    """Return a device's display name."""
    return f"{device.name} ({device.device}) of node {state.nodes.title(device.node)}"


def device_ids(device: Device) -> LogIds:
    """Return a device's ids, for the log."""
    return LogIds(node=device.node, device=device.device)


def _noted(state: SupervisorState, action: LogAction, device: Device, what: str) -> list[Effect]:
    return [Note(action, f"{named(state, device)} {what}", device_ids(device))]


def _may_be_tried(state: SupervisorState, book: NodeBook, device: Device, now_s: float) -> bool:
    """Return whether a device's wait is over, it seems well, and the process that failed on it has ended."""
    condition = book.conditions.get(device.device)
    if not is_due(book.record_of(device.device), now_s) or (condition is not None and condition.trouble):
        return False
    here = [each for each in state.stations.values() if each.device == device.device]
    return not any(each.recycle_due and not each.is_holding for each in here)


def _failed(state: SupervisorState, book: NodeBook, device: Device, reason: str, now_s: float) -> list[Effect]:
    after = trial_failed(book.record_of(device.device), reason, now_s, state.settings.quarantine_s)
    rest_s = 0.0 if after.quarantine is None else after.quarantine.rest_until_s - now_s
    what = f"stays in quarantine, for {rest_s:.0f} s at least: {reason}"
    return [*_noted(state, LogAction.DEVICE_QUARANTINED, device, what), *_changed(state, book, device, after)]


def _passed(state: SupervisorState, book: NodeBook, device: Device, now_s: float) -> list[Effect]:
    _recycle(state, device, "its device may work again", holding=True)
    after = trial_passed(book.record_of(device.device), now_s)
    notes = _noted(state, LogAction.DEVICE_TRUSTED, device, "is back from quarantine: it passed its trial")
    return [*notes, *_changed(state, book, device, after)]


def _changed(state: SupervisorState, book: NodeBook, device: Device, after: DeviceRecord) -> list[Effect]:
    book.set_record(device.device, after)
    state.is_dirty = True
    records = book.quarantines
    return [KeepQuarantines({key: record for key, record in records.items() if record.quarantine is not None})]


def _recycle(state: SupervisorState, device: Device, reason: str, *, holding: bool) -> None:
    """Replace a device's processes once they are idle: those that only hold it, or those that use it."""
    for station in state.stations.values():
        if station.device == device.device and station.state is StationState.READY and station.is_holding is holding:
            station.recycle_due = station.recycle_due or reason
            state.is_dirty = True


def recalled(state: SupervisorState, event: QuarantinesRecalled, _now_s: float) -> list[Effect]:
    """Apply the quarantines of an earlier supervisor."""
    state.nodes.quarantines.update(event.records)
    for book in state.nodes:
        for device in book.gpus:
            if (found := book.quarantine_of(device.device)) is not None:
                _recycle(state, device, f"its device is in quarantine: {found.reason}", holding=False)
    line = f"{len(event.records)} devices are in quarantine from before"
    return [Note(LogAction.DEVICE_QUARANTINED, line)] if event.records else []
