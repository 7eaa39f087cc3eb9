"""A device in ``codecfleet status``: plain values, with a reason for each missing value."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...device_values import Absences, health_values, licence_values
from ...placement.model.inventory import Device
from ...probes.report.engines import MEDIA_ENGINES, Engine
from ...probes.vgpu.instances import VgpuLoad
from ..state.conditions import FULL_PERCENT, Condition, use_of
from ..state.nodes import NodeBook
from ..state.quarantine import DeviceRecord

GIB: Final = 1 << 30
NOT_POLLED = "it has not been polled yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """A GPU, slice or vGPU. Values that are not reported are None; ``unknown`` has the reasons by name."""

    node: str
    device: str
    name: str
    state: str  # open, cordoned, draining or quarantined
    reason: str  # the reason for this state
    # {} unless the device is in quarantine: "cause" (poll, deaths, faults), "since" (in UTC), "for_s", "times"
    # (quarantines in a row), and "trial_in_s" (when a trial may end the quarantine; None if only ``uncordon`` can).
    quarantine: dict[str, Any] = field(default_factory=dict)
    seen_s: float | None = None  # how long ago the device was polled; None if it was not
    told_by: str = ""  # how other programs' use is distinguished from codecfleet's use
    # For each engine, "percent" is how busy the engine is, and "others_percent" is other programs' use as placement
    # counts it.
    use: dict[str, dict[str, int | None]] = field(default_factory=dict)
    memory: dict[str, int | None] = field(
        default_factory=dict
    )  # the keys "total_bytes", "used_bytes" and "others_bytes"
    encoder_sessions: dict[str, int | None] = field(default_factory=dict)  # the keys "open" and "others"
    throttle: str | None = None
    health: dict[str, Any] = field(default_factory=dict)
    licence: str | None = None
    is_licensed: bool | None = None
    scheduler: str | None = None
    accounting: bool | None = None
    vgpus: tuple[dict[str, Any], ...] = ()
    hosted: str = ""  # which host of the cluster runs a vGPU, and how the GPU is shared there
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def memory_used(self) -> str:
        """The device's memory in use as ``3.0 of 24.0`` GiB; "" if unknown."""
        total, used = self.memory.get("total_bytes"), self.memory.get("used_bytes")
        return "" if total is None or used is None else f"{used / GIB:.1f} of {total / GIB:.1f}"

    @property
    def held_down(self) -> str:
        """A sentence about a limit on the device's clocks; "" without a limit."""
        return "" if self.throttle in (None, "none") else f"clocks are held down: {self.throttle}"


def device_status(title: str, device: Device, node: NodeBook, now_s: float) -> DeviceStatus:
    """Return a device's status; ``title`` is the display name of the device's node."""
    condition, hosted = node.conditions.get(device.device), node.hosted.get(device.device)
    absences = Absences()
    if condition is None or node.unseen_reason:
        absences.unknown["poll"] = node.unseen_reason or NOT_POLLED
    polled = {} if condition is None else _polled(absences, condition, now_s)
    return DeviceStatus(
        node=title,
        device=device.device,
        name=device.name,
        state=device.state.value,
        reason=device.state_reason,
        quarantine=_quarantine(node.record_of(device.device), now_s),
        hosted="" if hosted is None else hosted.sentence,
        unknown=absences.unknown,
        **polled,
    )


def _quarantine(record: DeviceRecord, now_s: float) -> dict[str, Any]:
    found = record.quarantine
    if found is None:
        return {}
    since = datetime.now(UTC) - timedelta(seconds=now_s - found.since_s)
    return {
        "cause": found.cause.value,
        "since": since.isoformat(timespec="seconds"),
        "for_s": round(now_s - found.since_s, 1),
        "times": record.times,
        "trial_in_s": None if found.until_uncordon else round(max(0.0, found.rest_until_s - now_s), 1),
    }


def _polled(absences: Absences, condition: Condition, now_s: float) -> dict[str, Any]:
    seen = condition.seen
    return {
        "seen_s": round(now_s - condition.seen_s, 1),
        "told_by": condition.basis.value,
        "use": {engine.value: _use(absences, condition, engine) for engine in MEDIA_ENGINES},
        "memory": _memory(absences, condition),
        "encoder_sessions": _sessions(absences, condition),
        "throttle": absences.value("throttle", seen.throttle),
        "health": health_values(absences, seen.health, condition.xids),
        **licence_values(absences, seen.licence),
        "scheduler": absences.value("scheduler", seen.scheduler),
        "accounting": absences.value("accounting", seen.accounting),
        "vgpus": tuple(map(_vgpu, seen.vgpus)),
    }


def _use(absences: Absences, condition: Condition, engine: Engine) -> dict[str, int | None]:
    percent = absences.value(engine.value, use_of(condition.seen, engine))
    level = condition.others.get(engine)
    others = None if percent is None or level is None else round(level.part * FULL_PERCENT)
    return {"percent": percent, "others_percent": others}


def _memory(absences: Absences, condition: Condition) -> dict[str, int | None]:
    memory = absences.value("memory", condition.seen.memory)
    if memory is None:
        return {}
    others = condition.memory_others_bytes
    if others is None:
        absences.unknown["memory_others"] = "a worker uses the device, and the driver does not report how much of it"
    return {"total_bytes": memory.total_bytes, "used_bytes": memory.used_bytes, "others_bytes": others}


def _sessions(absences: Absences, condition: Condition) -> dict[str, int | None]:
    count = absences.value("encoder_sessions", condition.seen.encoder_sessions)
    return {"open": count, "others": None if count is None else condition.encoder_sessions_others}


def _vgpu(vgpu: VgpuLoad) -> dict[str, Any]:
    absences = Absences()
    return {
        "instance": vgpu.instance,
        "decoder_percent": absences.value("decoder_percent", vgpu.use.decoder_percent),
        "encoder_percent": absences.value("encoder_percent", vgpu.use.encoder_percent),
        "is_licensed": absences.value("is_licensed", vgpu.licensed),
        "accounting": absences.value("accounting", vgpu.accounting_enabled),
        "unknown": absences.unknown,
    }
