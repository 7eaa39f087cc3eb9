"""Puts devices into quarantine, by their identity, and brings back those that pass a trial."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.engines import Engine
from ...worker_names import node_of, station_of
from ..state.events import Effect, KeepQuarantines, Note
from ..state.messages import DeviceFault
from ..state.nodes import NodeBook
from ..state.quarantine import (
    Blame,
    Cause,
    DeviceFailure,
    DeviceRecord,
    due_now,
    is_due,
    put_away,
    suspected,
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
from ..state.stations import StationBook, StationState

_AWAY = "its device is in quarantine: {}"


def quarantine(state: SupervisorState, book: NodeBook, device: Device, blame: Blame) -> list[Effect]:
    """Give a device no more work until it passes a trial; replace the process that has it.

    What failed in that process may have left its CUDA or cuDLA state unusable.
    """
    before = book.record_of(device.device)
    after = put_away(before, blame, device, state.settings.quarantine_s)
    if after == before:
        return []
    _recycle(state, device.device, _AWAY.format(blame.reason), lambda each: not each.is_holding)
    is_new = before.quarantine is None
    line = f"{named(state, device)} is in quarantine: {blame.reason}"
    notes = [Note(LogAction.DEVICE_QUARANTINED, line, device_ids(device))] if is_new else []
    return [*notes, *_changed(state, book, device.device, after)]


def begin_trials(state: SupervisorState, now_s: float) -> list[Effect]:
    """Probe the nodes of quarantined devices that have rested, and seem well."""
    if not any(is_due(record, now_s) for record in state.nodes.quarantines.records.values()):
        return []
    return [
        book.probe_again(now_s)
        for book in state.nodes
        if not book.is_probing(now_s)
        and book.is_polled
        and any(_may_be_tried(state, book, each, now_s) for each in book.gpus)
    ]


def take_trials(state: SupervisorState, book: NodeBook, now_s: float) -> list[Effect]:
    """Bring back the devices that passed the probe that a node has just answered; others rest for longer."""
    effects: list[Effect] = []
    for device in book.gpus:
        record = book.record_of(device.device)
        if record.quarantine is None and device.state is DeviceState.QUARANTINED:
            effects += quarantine(state, book, device, Blame(Cause.POLL, device.state_reason, now_s))
        elif record.suspicion and record.quarantine is None:
            reason = why_guilty(record, device)
            state.nodes.quarantines.records[book.key_of(device.device)] = replace(record, suspicion="")
            blame = Blame(Cause.FAULTS, reason, now_s, engines=frozenset({Engine.NVDEC}))
            effects += quarantine(state, book, device, blame) if reason else []
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
    found = [device.device for device in book.gpus if book.quarantine_of(device.device) is not None]
    changes = [_changed(state, book, device, due_now(book.record_of(device), now_s)) for device in found]
    return changes[-1] if changes else []


def take_faults(state: SupervisorState, faults: Iterable[DeviceFault], now_s: float) -> list[Effect]:
    """Count what clients report of workers' devices; several different files show that it is the device."""
    effects: list[Effect] = []
    for fault in faults:
        book = state.nodes.get(node_of(station_of(fault.worker)))
        station = state.stations.get(station_of(fault.worker))
        device = "" if station is None else station.device_of(fault.worker)
        found = None if book is None else next((each for each in book.gpus if each.device == device), None)
        if book is not None and found is not None and book.quarantine_of(device) is None:
            said = DeviceFailure(file=fault.file, is_wrong=fault.is_wrong, reason=fault.reason, at_s=now_s)
            take = _take_doubt if fault.is_doubtful else _take_fault
            effects += take(state, book, found, said)
    return effects


def _take_fault(state: SupervisorState, book: NodeBook, device: Device, fault: DeviceFailure) -> list[Effect]:
    record = with_fault(book.record_of(device.device), fault)
    quarantines = state.nodes.quarantines
    quarantines.records[book.key_of(device.device)] = record
    reason = why_faulty(record.faults, quarantines.suspects())
    return quarantine(state, book, device, Blame(Cause.FAULTS, reason, fault.at_s)) if reason else []


def _take_doubt(state: SupervisorState, book: NodeBook, device: Device, doubt: DeviceFailure) -> list[Effect]:
    """Try a device that is in doubt for several files: only a trial tells it from odd files and bad neighbours."""
    record = with_doubt(book.record_of(device.device), doubt)
    reason = "" if book.is_probing(doubt.at_s) else why_suspect(record)
    kept = suspected(record, reason, doubt.at_s) if reason else record
    state.nodes.quarantines.records[book.key_of(device.device)] = kept
    if not reason:
        return []
    tried = Note(LogAction.DEVICE_TRIED, f"{named(state, device)} is tried: {reason}", device_ids(device))
    return [tried, book.probe_again(doubt.at_s, from_scratch=False)]


def resolved(book: NodeBook, identity: str) -> str:
    """Return the inventory's name of a GPU that its worker could only call by number or bus id, since it is lost."""
    known = book.probed or book.ray.unprobed()
    for gpu in () if known.shown is None else known.shown.gpus:
        if identity in {f"{book.ray.node}/{gpu.index}", f"{book.ray.node}/{gpu.bus_id}"} and not gpu.is_cut:
            return gpu.uuid if gpu.uuid and not gpu.is_guest else identity
    return identity


def named(state: SupervisorState, device: Device) -> str:
    """Return a device's display name."""
    return f"{device.name} ({device.device}) of node {state.nodes.title(device.node)}"


def device_ids(device: Device) -> LogIds:
    """Return a device's ids, for the log."""
    return LogIds(node=device.node, device=device.device)


def _may_be_tried(state: SupervisorState, book: NodeBook, device: Device, now_s: float) -> bool:
    """Return whether a device has rested, seems well, and is not used by the process any more that failed on it."""
    condition = book.conditions.get(device.device)
    if not is_due(book.record_of(device.device), now_s) or (condition is not None and condition.trouble):
        return False
    here = [each for each in state.stations.values() if each.device == device.device]
    return not any(each.recycle_due and not each.is_holding for each in here)


def _failed(state: SupervisorState, book: NodeBook, device: Device, reason: str, now_s: float) -> list[Effect]:
    after = trial_failed(book.record_of(device.device), reason, now_s, state.settings.quarantine_s)
    rest_s = 0.0 if after.quarantine is None else after.quarantine.rest_until_s - now_s
    line = f"{named(state, device)} stays in quarantine, for {rest_s:.0f} s at least: {reason}"
    return [Note(LogAction.DEVICE_QUARANTINED, line, device_ids(device)), *_changed(state, book, device.device, after)]


def _passed(state: SupervisorState, book: NodeBook, device: Device, now_s: float) -> list[Effect]:
    _recycle(state, device.device, "its device may work again", lambda each: each.is_holding)
    line = f"{named(state, device)} is back from quarantine: it passed its trial"
    after = trial_passed(book.record_of(device.device), now_s)
    return [Note(LogAction.DEVICE_TRUSTED, line, device_ids(device)), *_changed(state, book, device.device, after)]


def _changed(state: SupervisorState, book: NodeBook, device: str, after: DeviceRecord) -> list[Effect]:
    records = state.nodes.quarantines.records
    records[book.key_of(device)] = after
    state.is_dirty = True
    return [KeepQuarantines({key: record for key, record in records.items() if record.quarantine is not None})]


def _recycle(state: SupervisorState, device: str, reason: str, concerns: Callable[[StationBook], bool]) -> None:
    for station in state.stations.values():
        if station.device == device and station.state is StationState.READY and concerns(station):
            station.recycle_due = station.recycle_due or reason
            state.is_dirty = True


def recalled(state: SupervisorState, records: dict[str, DeviceRecord]) -> list[Effect]:
    """Apply the quarantines of an earlier supervisor."""
    state.nodes.quarantines.records.update(records)
    state.is_dirty = True
    for book in state.nodes:
        for device in book.gpus:
            if (found := book.quarantine_of(device.device)) is not None:
                _recycle(state, device.device, _AWAY.format(found.reason), lambda each: not each.is_holding)
    line = f"{len(records)} devices are in quarantine from before"
    return [Note(LogAction.DEVICE_QUARANTINED, line)] if records else []
