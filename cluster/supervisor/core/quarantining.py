"""Quarantines of devices, and of stations whose processes keep dying before their device is known."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ...device_fault import DeviceFault, FaultVerdict
from ...grouping import counted
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.engines import Engine
from ...worker_names import NodeId
from ..state.events import Effect, KeepQuarantines, Note, QuarantinesRecalled
from ..state.nodes import NodeBook
from ..state.quarantine import (
    Cause,
    DeviceRecord,
    Quarantine,
    due_now,
    is_due,
    put_away,
    rests_of,
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
from ..state.stations import StationBook, StationState

KEEP_S: Final = 10.0
"""How often the quarantines are stored for the next supervisor."""
_WAITING = (StationState.RESTING, StationState.QUARANTINED)
"""States in which a station waits until its ``rest_until_s``."""


def quarantine(state: SupervisorState, book: NodeBook, device: Device, found: Quarantine) -> list[Effect]:
    """Give a device no work until its quarantine ends; replace its process, whose CUDA state may be unusable."""
    before = book.record_of(device.device)
    after = put_away(before, found, device, state.settings.quarantine_s)
    if after == before:
        return []
    _recycle(state, device, f"its device is in quarantine: {found.reason}", holding=False)
    is_new = before.quarantine is None
    notes = _noted(state, LogAction.DEVICE_QUARANTINED, device, f"is in quarantine: {found.reason}") if is_new else []
    return [*notes, *_changed(state, book, device, after)]


def begin_trials(state: SupervisorState, now_s: float) -> list[Effect]:
    """Probe the nodes of quarantined devices that have waited long enough and look healthy."""
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
    """Apply the trials of a node's probe: a device that was tried enters, leaves or stays in quarantine."""
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
    """Apply a probe without an answer: it counts as a failed trial of each device of the node whose trial was due."""
    tried = [device for device in book.gpus if _may_be_tried(state, book, device, now_s)]
    return [effect for device in tried for effect in _failed(state, book, device, reason, now_s)]


def end_rests(state: SupervisorState, book: NodeBook, now_s: float) -> list[Effect]:
    """Make the trials of a node's quarantined devices due, because a user trusts the node again."""
    found = [device for device in book.gpus if book.quarantine_of(device.device) is not None]
    changes = [_changed(state, book, device, due_now(book.record_of(device.device), now_s)) for device in found]
    return changes[-1] if changes else []


def take_faults(state: SupervisorState, faults: Iterable[DeviceFault], now_s: float) -> list[Effect]:
    """Count device faults that clients report; faults on several files put the device into quarantine."""
    effects: list[Effect] = []
    for fault in faults:
        station = state.stations.get(fault.worker.station)
        book = None if station is None else state.node_of(station)
        device = None if station is None or book is None else book.gpu(station.took.get(fault.worker.epoch, ""))
        if book is not None and device is not None and book.quarantine_of(device.device) is None:
            take = _take_doubt if fault.verdict is FaultVerdict.DOUBTFUL else _take_fault
            effects += take(state, book, device, replace(fault, at_s=now_s))
    return effects


def _take_fault(state: SupervisorState, book: NodeBook, device: Device, fault: DeviceFault) -> list[Effect]:
    record = with_fault(book.record_of(device.device), fault)
    book.set_record(device.device, record)
    reason = why_faulty(record.faults, suspects(book.quarantines.values()))
    found = Quarantine(cause=Cause.FAULTS, reason=reason, since_s=fault.at_s)
    return quarantine(state, book, device, found) if reason else []


def _take_doubt(state: SupervisorState, book: NodeBook, device: Device, doubt: DeviceFault) -> list[Effect]:
    """Order a trial of a device with doubtful results for several files, to tell a bad device from odd files."""
    record = with_doubt(book.record_of(device.device), doubt)
    reason = "" if book.is_probing(doubt.at_s) else why_suspect(record)
    if not reason:
        book.set_record(device.device, record)
        return []
    book.set_record(device.device, replace(record, doubts=(), suspicion=reason, tried_s=doubt.at_s))
    notes = _noted(state, LogAction.DEVICE_TRIED, device, f"is tried: {reason}")
    return [*notes, book.probe_again(doubt.at_s, from_scratch=False)]


def resolved(book: NodeBook, identity: str) -> str:
    """Return a GPU's name in the inventory; the worker of a lost GPU reports only a number or bus id."""
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
    """Return whether a device has waited long enough, seems well, and no longer runs the process that failed."""
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
    return [_kept(state)]


def keep_again(state: SupervisorState, now_s: float) -> list[Effect]:
    """Store the quarantines every ``KEEP_S``, so that their stored ages stay nearly right."""
    kept = _kept(state)
    if not kept.records or now_s - state.nodes.quarantines_kept_s < KEEP_S:
        return []
    state.nodes.quarantines_kept_s = now_s
    return [kept]


def _kept(state: SupervisorState) -> KeepQuarantines:
    records = state.nodes.quarantines.items()
    return KeepQuarantines({key: each for key, each in records if each.quarantine is not None})


def _recycle(state: SupervisorState, device: Device, reason: str, *, holding: bool) -> None:
    """Mark a device's processes for replacement: if ``holding``, those that only hold it, else those that use it."""
    for station in state.stations.values():
        if station.device == device.device and station.state is StationState.READY and station.is_holding is holding:
            station.recycle_due = station.recycle_due or reason
            state.is_dirty = True


def recalled(state: SupervisorState, event: QuarantinesRecalled, _now_s: float) -> list[Effect]:
    """Apply the quarantines that an earlier supervisor stored."""
    state.nodes.quarantines.update(event.records)
    for book in state.nodes:
        for device in book.gpus:
            if (found := book.quarantine_of(device.device)) is not None:
                _recycle(state, device, f"its device is in quarantine: {found.reason}", holding=False)
    line = f"still in quarantine: {counted(len(event.records), 'device')}"
    return [Note(LogAction.DEVICE_QUARANTINED, line)] if event.records else []


def quarantine_dying(state: SupervisorState, book: StationBook, reason: str, now_s: float) -> list[Effect]:
    """Quarantine the device of a station whose processes keep dying; if the device is unknown, the station."""
    why = f"its processes died {book.deaths_in_a_row} times in a row: {reason}"
    node = state.node_of(book)
    device = node.gpu(book.device)
    if book.state is StationState.READY and device is not None:
        book.to(StationState.RESTING, now_s, reason)
        book.rest_until_s, book.deaths_in_a_row = now_s, 0
        wake(state, book, now_s)
        return quarantine(state, node, device, Quarantine(cause=Cause.DEATHS, reason=why, since_s=now_s))
    book.to(StationState.QUARANTINED, now_s, why)
    _rest_longer(state, book, now_s)
    return [state.note(LogAction.WORKER_QUARANTINED, book, f"is in quarantine: {book.reason}")]


def _rest_longer(state: SupervisorState, book: StationBook, now_s: float) -> None:
    book.quarantines += 1
    book.rest_until_s = now_s + rests_of(state.settings.quarantine_s).wait_s(book.quarantines)


def wake(state: SupervisorState, book: StationBook, now_s: float) -> None:
    """Let a station that has waited long enough after a death start again."""
    if book.state is StationState.RESTING and now_s >= book.rest_until_s:
        book.to(StationState.EMPTY, now_s)
        state.is_dirty = True


def end_waits(state: SupervisorState, now_s: float) -> list[Effect]:
    """Let stations that have waited long enough start again; if they are in quarantine, probe their nodes first."""
    effects: list[Effect] = []
    for book in [book for book in state.stations.values() if book.state in _WAITING and now_s >= book.rest_until_s]:
        wake(state, book, now_s)
        if book.state is StationState.QUARANTINED and not state.node_of(book).is_probing(now_s):
            effects.append(state.node_of(book).probe_again(now_s))
    return effects


def release_stations(state: SupervisorState, node: NodeId, now_s: float, *, has_report: bool) -> list[Effect]:
    """Bring back a node's quarantined stations that have waited enough; after a failed probe, only CPU stations."""
    effects: list[Effect] = []
    for book in state.stations.values():
        if book.station.node != node or book.state is not StationState.QUARANTINED or now_s < book.rest_until_s:
            continue
        if has_report or book.station.kind.is_processor:
            book.to(StationState.EMPTY, now_s, "a probe of its node has ended")
            book.deaths_in_a_row = 0
            effects.append(state.note(LogAction.WORKER_TRUSTED, book, "is back from quarantine"))
        else:
            _rest_longer(state, book, now_s)
    return effects
