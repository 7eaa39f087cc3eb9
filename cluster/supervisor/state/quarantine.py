"""Devices in quarantine: why, since when, and when the next trial may end the quarantine.

Records have the device's identity as key, and so outlive workers, stations and the node's membership in Ray.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ....actors.backoff import Backoff
from ...device_fault import DeviceFault, FaultVerdict
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.engines import MEDIA_ENGINES, Engine, How
from ...worker_names import NodeId

REST_MAX_S: Final = 3600.0
"""The longest wait between two trials; a device that stays out of quarantine for this long has a clean record."""
FAULT_KEPT_S: Final = 600.0
"""How long a failure counts against a device."""
FILES_FAILED: Final = 3
"""Sessions that failed for this many different files show that the device is to blame."""
FILES_WRONG: Final = 2
"""Wrong results for this many different files show that the device is to blame."""
FILES_DOUBTFUL: Final = 3
"""Doubtful results for this many different files are a reason for a trial."""


class Cause(Enum):
    """Why a device was put into quarantine."""

    POLL = "poll"  #: the device's driver reported a fault
    DEATHS = "deaths"  #: the device's worker processes died
    FAULTS = "faults"  #: sessions on the device failed, or gave wrong results, for different files


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Why and since when a device is in quarantine."""

    cause: Cause
    reason: str
    since_s: float
    rest_until_s: float = 0.0  # no trial happens earlier
    until_uncordon: bool = False  # only a user can end the quarantine, not a trial
    engines: frozenset[Engine] = frozenset()  # engines that must work in a trial: engines that failed or worked before


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """A device's faults and quarantines."""

    quarantine: Quarantine | None = None
    times: int = 0  # quarantines and failed trials in a row
    returned_s: float | None = None  # when the last quarantine ended
    faults: tuple[DeviceFault, ...] = ()
    doubts: tuple[DeviceFault, ...] = ()  # doubts since the last trial that doubts caused
    suspicion: str = ""  # the doubts that caused the current trial; "" without one
    tried_s: float | None = None  # when doubts last caused a trial


CLEAN: Final = DeviceRecord()


def suspects(records: Iterable[DeviceRecord]) -> frozenset[str]:
    """Return the files that failed on several devices: they are to blame, so their faults count against no device."""
    devices = Counter(file for record in records for file in {fault.file for fault in record.faults})
    return frozenset(file for file, count in devices.items() if count > 1)


def key_of(device: str, node: NodeId, host: str) -> str:
    """Return a device's key in records; a name that is unique only on the node is prefixed with the host's name."""
    return f"{host}/{device.removeprefix(f'{node}/')}" if device.startswith(f"{node}/") else device


def put_away(record: DeviceRecord, found: Quarantine, device: Device, rest_s: float) -> DeviceRecord:
    """Return the record of a device that enters or is in quarantine; ``rest_s`` is the wait before the first trial."""
    before = record.quarantine
    if before is not None:
        stays = before.until_uncordon or found.until_uncordon
        return replace(record, quarantine=replace(before, reason=found.reason, until_uncordon=stays))
    is_forgiven = record.returned_s is not None and found.since_s - record.returned_s >= REST_MAX_S
    times = 1 if is_forgiven else record.times + 1
    rest_until_s = found.since_s + rests_of(rest_s).wait_s(times)
    engines = working_engines(device) | found.engines
    return DeviceRecord(quarantine=replace(found, rest_until_s=rest_until_s, engines=engines), times=times)


def rests_of(rest_s: float) -> Backoff:
    """Return how long to wait before each trial; ``rest_s`` is the wait before the first trial."""
    return Backoff(rest_s, REST_MAX_S)


def trial_failed(record: DeviceRecord, reason: str, now_s: float, rest_s: float) -> DeviceRecord:
    """Return the record of a quarantined device after a failed trial: the next wait is twice as long."""
    if record.quarantine is None:
        return record
    times = record.times + 1
    rests = replace(record.quarantine, reason=reason, rest_until_s=now_s + rests_of(rest_s).wait_s(times))
    return replace(record, quarantine=rests, times=times)


def trial_passed(record: DeviceRecord, now_s: float) -> DeviceRecord:
    """Return the record of a device that may work again."""
    return replace(record, quarantine=None, returned_s=now_s)


def due_now(record: DeviceRecord, now_s: float) -> DeviceRecord:
    """Return the record of a device that a user wants back: the next trial decides whether it works."""
    if record.quarantine is None:
        return record
    return replace(record, quarantine=replace(record.quarantine, rest_until_s=now_s, until_uncordon=False))


def is_due(record: DeviceRecord, now_s: float) -> bool:
    """Return whether a quarantined device's next trial is due."""
    found = record.quarantine
    return found is not None and not found.until_uncordon and now_s >= found.rest_until_s


def with_fault(record: DeviceRecord, fault: DeviceFault) -> DeviceRecord:
    """Add a fault to the record; drop old faults, and other faults of the same file and kind."""
    kept = tuple(
        each
        for each in record.faults
        if fault.at_s - each.at_s < FAULT_KEPT_S and (each.file, each.verdict) != (fault.file, fault.verdict)
    )
    return replace(record, faults=(*kept, fault))


def with_doubt(record: DeviceRecord, doubt: DeviceFault) -> DeviceRecord:
    """Add a doubt to the record; for a while after a trial cleared the device, doubts do not count."""
    if record.tried_s is not None and doubt.at_s - record.tried_s < FAULT_KEPT_S:
        return record
    kept = tuple(each for each in record.doubts if doubt.at_s - each.at_s < FAULT_KEPT_S and each.file != doubt.file)
    return replace(record, doubts=(*kept, doubt))


def why_suspect(record: DeviceRecord) -> str:
    """Return why a device should be tried; "" if it need not be tried."""
    if len(record.doubts) < FILES_DOUBTFUL:
        return ""
    return f"software had to take over for {len(record.doubts)} different files, last: {record.doubts[-1].reason}"


def why_guilty(record: DeviceRecord, probed: Device) -> str:
    """Return why the trial of a suspected device shows a fault; "" if the device decoded, or could not be tried."""
    own = [trial for trial in probed.trials if trial.engine is Engine.NVDEC and trial.how is How.TRIED]
    if not record.suspicion or not own or any(trial.works for trial in own):
        return ""
    return f"{record.suspicion}; and in a trial: {own[0].reason}"


def why_faulty(faults: Iterable[DeviceFault], suspects: frozenset[str]) -> str:
    """Return why faults show that the device is at fault, or "" if files may be; files in ``suspects`` do not count."""
    counted = [fault for fault in faults if fault.file not in suspects]
    wrong = [fault for fault in counted if fault.verdict is FaultVerdict.WRONG]
    if (files := len({fault.file for fault in wrong})) >= FILES_WRONG:
        return f"it gave wrong results for {files} different files, last: {wrong[-1].reason}"
    if (files := len({fault.file for fault in counted})) >= FILES_FAILED:
        return f"its sessions failed for {files} different files, last: {counted[-1].reason}"
    return ""


def working_engines(device: Device) -> frozenset[Engine]:
    """Return which engines (NVDEC, NVENC) worked in a trial."""
    return frozenset(trial.engine for trial in device.trials if trial.works and trial.engine in MEDIA_ENGINES)


def why_not_passed(quarantine: Quarantine, probed: Device | None) -> str:
    """Return why the device stays in quarantine after a probe; "" if every engine that must work passed its trial."""
    if probed is None:
        return "the probe of its node does not list it"
    if probed.state is DeviceState.QUARANTINED:
        return probed.state_reason
    if probed.untried:
        return f"its trial could not run: {probed.untried}"
    own = replace(probed, trials=tuple(trial for trial in probed.trials if trial.how is not How.KIND))
    working = working_engines(own)
    reasons = {trial.engine: trial.reason for trial in own.trials if not trial.works}
    for engine in MEDIA_ENGINES:
        if engine in quarantine.engines - working:
            return f"its {engine.value.upper()} failed the trial: {reasons.get(engine) or 'it was not tried'}"
    return "" if working else "none of its engines passed a trial"
