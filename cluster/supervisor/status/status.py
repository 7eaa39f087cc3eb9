"""The supervisor's status: frozen values for ``codecfleet status``."""

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...probes.report.device_report import DeviceKind
from ...version import VERSION
from ..core.granting import why_not
from ..state.clients import JobBook
from ..state.nodes import NodeBook
from ..state.state import SupervisorState
from ..state.stations import StationBook
from .device_status import DeviceStatus, device_status


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node, as it was last probed."""

    node: str
    name: str
    state: str  # open, cordoned or draining
    devices: str  # "2 cores, L4 (4 NVDEC, 2 NVENC)"
    probed: bool
    release: str = ""  # the version of codecfleet that is installed, "" where that is not known
    driver_choice: str = ""  # which CUDA driver its workers load, and why; "" where there was nothing to choose


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A station: its process's state, leases, and speed in source frames a second."""

    worker: str
    node: str
    kind: str
    state: str
    since_s: float
    reason: str
    pid: int | None
    device: str
    slots: int
    leases: dict[str, int]
    fps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job: its remaining segments, what it may use and uses, and why it waits if it does.

    ``title`` is the name of its input, "" where it has none. ``done_percent`` is the part whose segments are finished,
    and ``left_s`` how long the rest takes at its workers' speed; None where that is not known.
    """

    job: str
    client: str
    priority: int
    segments_left: int
    granted_slots: int
    used_slots: int
    waits_for: str
    title: str = ""
    done_percent: int | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group of nodes that come and go: how many are there and wanted, of how many at most, and why."""

    group: str
    there: int
    wanted: int
    nodes_max: int
    price_per_hour: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingStatus:
    """How a cluster grows and shrinks; prices are exact decimals.

    ``price_per_hour`` is that of all nodes that are wanted. ``late`` says which jobs will be late and why. ``trouble``
    says why Ray takes no orders, "" where it does.
    """

    groups: tuple[GroupStatus, ...]
    price_per_hour: str
    price_per_hour_max: str | None
    late: tuple[str, ...]
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The full status. ``log`` are (seconds since the epoch, line), oldest first.

    ``pid`` is the supervisor's, and ``release`` its version of codecfleet.
    ``autoscaling`` is None for a cluster that does not grow by itself.
    """

    pid: int
    host: str
    nodes: tuple[NodeStatus, ...]
    devices: tuple[DeviceStatus, ...]
    workers: tuple[WorkerStatus, ...]
    jobs: tuple[JobStatus, ...]
    quarantine: tuple[str, ...]
    log: tuple[tuple[float, str], ...]
    autoscaling: AutoscalingStatus | None = None
    release: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def status_of(
    state: SupervisorState, fps: Mapping[str, float], log: tuple[tuple[float, str], ...], now_s: float
) -> Status:
    """Return the status, in a fixed order."""
    leases: dict[str, dict[str, int]] = {}
    for job in state.clients.jobs():
        for worker, held in job.held.items():
            if held:
                leases.setdefault(worker, {})[job.key] = held
    workers = tuple(_worker(state, book, leases, fps, now_s) for _, book in sorted(state.stations.items()))
    devices = tuple(
        device_status(state.nodes.title(node.ray.node), device, node, now_s)
        for node in state.nodes
        for device in node.node.devices
        if device.kind is not DeviceKind.CPU
    )
    return Status(
        pid=os.getpid(),
        host=socket.gethostname(),
        nodes=tuple(map(_node, state.nodes)),
        devices=devices,
        workers=workers,
        jobs=tuple(
            _job(state, client.where, job, _speed(job, leases, fps))
            for client in state.clients
            for job in client.jobs.values()
        ),
        quarantine=(
            *(f"{worker.worker}: {worker.reason}" for worker in workers if worker.state == "quarantined"),
            *(_resting(device) for device in devices if device.quarantine),
        ),
        autoscaling=_autoscaling(state),
        log=log,
        release=VERSION,
    )


def _autoscaling(state: SupervisorState) -> AutoscalingStatus | None:
    config, decision = state.settings.autoscale, state.scaling.decision
    if config is None:
        return None
    sizes = {group.name: decision.size(group.name) for group in config.groups}
    groups = tuple(
        GroupStatus(
            group=group.name,
            there=sizes[group.name].there,
            wanted=sizes[group.name].wanted,
            nodes_max=group.nodes_max,
            price_per_hour=str(group.price_per_hour),
            reason=sizes[group.name].reason,
        )
        for group in config.groups
    )
    return AutoscalingStatus(
        groups=groups,
        price_per_hour=str(sum(sizes[group.name].wanted * group.price_per_hour for group in config.groups)),
        price_per_hour_max=None if config.price_per_hour_max is None else str(config.price_per_hour_max),
        late=tuple(f"{each.job}: {each.reason}" for each in decision.forecasts if each.reason),
        trouble=state.scaling.trouble,
    )


def _node(node: NodeBook) -> NodeStatus:
    return NodeStatus(
        node=node.ray.node,
        name=node.ray.name,
        state=node.state.value,
        devices=node.summary,
        probed=node.probed is not None,
        release="" if node.probed is None else node.probed.release,
        driver_choice="" if node.probed is None else node.probed.driver_choice,
    )


def _resting(device: DeviceStatus) -> str:
    left_s = device.quarantine["trial_in_s"]
    until = "until it is uncordoned" if left_s is None else f"next trial in {left_s:.0f} s"
    return f"{device.name} ({device.device}) since {device.quarantine['since']}, {until}: {device.reason}"


def _worker(
    state: SupervisorState,
    book: StationBook,
    leases: Mapping[str, dict[str, int]],
    fps: Mapping[str, float],
    now_s: float,
) -> WorkerStatus:
    return WorkerStatus(
        worker=book.station.station,
        node=state.nodes.title(book.station.node),
        kind=book.station.engine,
        state=book.state.value,
        since_s=round(now_s - book.since_s, 1),
        reason=book.reason,
        pid=None if book.facts is None else book.facts.pid,
        device=book.device,
        slots=book.ready_slots or book.station.slots,
        leases=leases.get(book.worker, {}),
        fps=fps.get(book.worker) if book.facts is not None else None,
    )


def _speed(job: JobBook, leases: Mapping[str, dict[str, int]], fps: Mapping[str, float]) -> float:
    """Return a job's part of its workers' speed, by the slots that it uses there."""
    return sum(fps.get(worker, 0.0) * held / sum(leases[worker].values()) for worker, held in job.held.items() if held)


def _job(state: SupervisorState, client: str, job: JobBook, speed_fps: float) -> JobStatus:
    total, left = job.demand.frames_total, sum(job.demand.segments)
    return JobStatus(
        job=job.key,
        client=client,
        priority=job.demand.priority,
        segments_left=len(job.demand.segments),
        granted_slots=sum(job.promised.values()),
        used_slots=sum(job.held.values()),
        waits_for="" if job.promised else why_not(state, job),
        title=job.demand.title,
        done_percent=max(0, 100 * (total - left) // total) if total else None,
        left_s=round(left / speed_fps, 1) if total and speed_fps else None,
    )
