"""Devices in quarantine: why, since when, and when the next trial may bring one back.

Records are kept by a device's identity, so they outlive its worker, its station, and its node's membership in Ray. All
functions are pure; times are seconds on the supervisor's clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ....actors.backoff import Backoff
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.engines import Engine, How

REST_MAX_S: Final = 3600.0
"""The longest rest between two trials; a device that stays out of quarantine for this long has a clean record."""
FAULT_KEPT_S: Final = 600.0
"""How long a failure counts against a device."""
FILES_FAILED: Final = 3
"""Sessions that failed for this many different files show that the device is to blame."""
FILES_WRONG: Final = 2
"""Wrong results for this many different files show the same."""
FILES_DOUBTFUL: Final = 3
"""Doubtful results for this many different files are a reason for a trial."""


class Cause(Enum):
    """What put a device into quarantine."""

    POLL = "poll"  #: what its driver reports
    DEATHS = "deaths"  #: its worker processes died
    FAULTS = "faults"  #: its sessions failed, or gave wrong results, on different files


@dataclass(frozen=True, slots=True)
class Blame:
    """Why a device enters quarantine, and when; ``until_uncordon``: no trial can tell that it is well again.

    ``engines`` are those that failed, which no probe shows at work any more.
    """

    cause: Cause
    reason: str
    at_s: float
    until_uncordon: bool = False
    engines: frozenset[Engine] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFailure:
    """A session on a device failed, or gave a wrong result, for one file."""

    file: str
    is_wrong: bool
    reason: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A device gets no work since ``since_s``; no trial before ``rest_until_s``, or ``until_uncordon`` by a user.

    ``engines`` are those that a trial must find working.
    """

    cause: Cause
    reason: str
    since_s: float
    rest_until_s: float
    until_uncordon: bool = False
    engines: frozenset[Engine] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """What is held against a device. ``times`` counts its rests in a row, ``returned_s`` is when the last one ended.

    ``doubts`` were found since its last trial for doubts, which was ordered at ``tried_s``; ``suspicion`` is why, while
    it lasts.
    """

    quarantine: Quarantine | None = None
    times: int = 0
    returned_s: float | None = None
    faults: tuple[DeviceFailure, ...] = ()
    doubts: tuple[DeviceFailure, ...] = ()
    suspicion: str = ""
    tried_s: float | None = None


CLEAN: Final = DeviceRecord()


@dataclass(slots=True)
class Quarantines:
    """The records of all devices that have one, by ``key_of``."""

    records: dict[str, DeviceRecord] = field(default_factory=dict)

    def of(self, key: str) -> DeviceRecord:
        """Return a device's record."""
        return self.records.get(key, CLEAN)

    def suspects(self) -> frozenset[str]:
        """Return the files that failed on several devices: the file is to blame, and counts against none."""
        seen: dict[str, int] = {}
        for record in self.records.values():
            for file in {fault.file for fault in record.faults}:
                seen[file] = seen.get(file, 0) + 1
        return frozenset(file for file, devices in seen.items() if devices > 1)


def key_of(device: str, node: str, host: str) -> str:
    """Return a device's name in records: a name that is unique on its node alone goes with the host, not Ray's id."""
    return f"{host}/{device.removeprefix(f'{node}/')}" if device.startswith(f"{node}/") else device


def put_away(record: DeviceRecord, blame: Blame, device: Device, rest_s: float) -> DeviceRecord:
    """Return the record of a device that enters quarantine; one that is in it already keeps its time.

    ``rest_s`` is the first rest; it doubles with each in a row.
    """
    before = record.quarantine
    if before is not None:
        stays = before.until_uncordon or blame.until_uncordon
        return replace(record, quarantine=replace(before, reason=blame.reason, until_uncordon=stays))
    is_forgiven = record.returned_s is not None and blame.at_s - record.returned_s >= REST_MAX_S
    times = 0 if is_forgiven else record.times
    found = Quarantine(
        cause=blame.cause,
        reason=blame.reason,
        since_s=blame.at_s,
        rest_until_s=blame.at_s + rests_of(rest_s).wait_s(times + 1),
        until_uncordon=blame.until_uncordon,
        engines=working_engines(device) | blame.engines,
    )
    return DeviceRecord(quarantine=found, times=times + 1)


def rests_of(rest_s: float) -> Backoff:
    """Return how long to rest before each trial; ``rest_s`` is the first rest."""
    return Backoff(rest_s, REST_MAX_S)


def trial_failed(record: DeviceRecord, reason: str, now_s: float, rest_s: float) -> DeviceRecord:
    """Return the record of a quarantined device whose trial failed: it rests for twice as long."""
    if record.quarantine is None:
        return record
    rests = replace(record.quarantine, reason=reason, rest_until_s=now_s + rests_of(rest_s).wait_s(record.times + 1))
    return replace(record, quarantine=rests, times=record.times + 1)


def trial_passed(record: DeviceRecord, now_s: float) -> DeviceRecord:
    """Return the record of a device that may work again."""
    return replace(record, quarantine=None, returned_s=now_s)


def due_now(record: DeviceRecord, now_s: float) -> DeviceRecord:
    """Return the record of a device whose rest a user has ended: the next trial decides."""
    if record.quarantine is None:
        return record
    return replace(record, quarantine=replace(record.quarantine, rest_until_s=now_s, until_uncordon=False))


def is_due(record: DeviceRecord, now_s: float) -> bool:
    """Return whether a trial may bring a device back now."""
    found = record.quarantine
    return found is not None and not found.until_uncordon and now_s >= found.rest_until_s


def with_fault(record: DeviceRecord, fault: DeviceFailure) -> DeviceRecord:
    """Return the record with one more fault; those that are too old, and older ones of the same file, are dropped."""
    kept = tuple(
        each
        for each in record.faults
        if fault.at_s - each.at_s < FAULT_KEPT_S and (each.file, each.is_wrong) != (fault.file, fault.is_wrong)
    )
    return replace(record, faults=(*kept, fault))


def with_doubt(record: DeviceRecord, doubt: DeviceFailure) -> DeviceRecord:
    """Return the record with one more doubt; for a while after a trial that cleared the device none counts."""
    if record.tried_s is not None and doubt.at_s - record.tried_s < FAULT_KEPT_S:
        return record
    kept = tuple(each for each in record.doubts if doubt.at_s - each.at_s < FAULT_KEPT_S and each.file != doubt.file)
    return replace(record, doubts=(*kept, doubt))


def why_suspect(record: DeviceRecord) -> str:
    """Return why a device must be tried, "" while it need not."""
    if len(record.doubts) < FILES_DOUBTFUL:
        return ""
    return f"software had to take over for {len(record.doubts)} different files, last: {record.doubts[-1].reason}"


def suspected(record: DeviceRecord, reason: str, now_s: float) -> DeviceRecord:
    """Return the record of a device that is tried for its doubts from now on."""
    return replace(record, doubts=(), suspicion=reason, tried_s=now_s)


def why_guilty(record: DeviceRecord, probed: Device) -> str:
    """Return why the trial of a suspected device condemns it; "" where it decoded, or could not be tried."""
    own = [trial for trial in probed.trials if trial.engine is Engine.NVDEC and trial.how is How.TRIED]
    if not record.suspicion or not own or any(trial.works for trial in own):
        return ""
    return f"{record.suspicion}; and in a trial: {own[0].reason}"


def why_faulty(faults: Iterable[DeviceFailure], suspects: frozenset[str]) -> str:
    """Return why faults show that the device is to blame, "" while single files may be."""
    counted = [fault for fault in faults if fault.file not in suspects]
    wrong = {fault.file for fault in counted if fault.is_wrong}
    files = {fault.file for fault in counted}
    if len(wrong) >= FILES_WRONG:
        last = next(fault for fault in reversed(counted) if fault.is_wrong)
        return f"it gave wrong results for {len(wrong)} different files, last: {last.reason}"
    if len(files) >= FILES_FAILED:
        return f"its sessions failed for {len(files)} different files, last: {counted[-1].reason}"
    return ""


def working_engines(device: Device) -> frozenset[Engine]:
    """Return which of NVDEC and NVENC a trial found working."""
    return frozenset(trial.engine for trial in device.trials if trial.works and trial.engine in _TRIED)


_TRIED: Final = (Engine.NVDEC, Engine.NVENC)


def why_not_passed(quarantine: Quarantine, probed: Device | None) -> str:
    """Return why a probe does not bring a device back; "" where it decoded, and encoded if it has that engine."""
    if probed is None:
        return "the probe of its node does not list it"
    if probed.state is DeviceState.QUARANTINED:
        return probed.state_reason
    if probed.untried:
        return f"its trial could not run: {probed.untried}"
    own = replace(probed, trials=tuple(trial for trial in probed.trials if trial.how is not How.KIND))
    working = working_engines(own)
    missing = quarantine.engines - working
    reasons: Mapping[Engine, str] = {trial.engine: trial.reason for trial in own.trials if not trial.works}
    for engine in _TRIED:
        if engine in missing:
            return f"its {engine.value.upper()} failed the trial: {reasons.get(engine) or 'it was not tried'}"
    return "" if working else "none of its engines passed a trial"
