"""The supervisor's status: frozen values for ``codecfleet status``."""

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from ...probes.report.device_kinds import SEATS
from ...version import VERSION
from ...worker_names import StationId, WorkerId
from ..core.granting import why_not
from ..state.clients import JobBook
from ..state.nodes import NodeBook
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from .device_status import DeviceStatus, device_status


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node, with its devices as last probed."""

    node: str
    name: str
    state: str  # open, cordoned or draining
    devices: str  # the devices in a few words: "2 cores, L4 (4 NVDEC, 2 NVENC)"
    probed: bool
    release: str = ""  # the installed version of codecfleet, "" if unknown
    driver_choice: str = ""  # which CUDA driver the workers load, and why; "" if there was no choice
    # by how many seconds the node's clock is behind the supervisor's, plus a heartbeat's delay; None if unknown
    skew_s: float | None = None
    clock: str = ""  # what is wrong with the node's clock; "" if nothing is


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A station and the station's process."""

    worker: StationId  # the station's name
    node: str  # the display name of the station's node
    kind: str  # the station's seat: cpu, gpu or dla
    state: str
    since_s: float  # how long the station has been in this state
    reason: str  # the reason for this state
    pid: int | None
    device: str
    slots: int
    leases: dict[str, int]  # slots in use, by job
    fps: float | None  # source frames a second
    heard_s: float | None = None  # how long ago the process's last heartbeat arrived; None before the first one

    @property
    def place(self) -> str:
        """The station's display name: the node's display name, a slash, and the station's name on the node."""
        return f"{self.node}/{self.worker.rpartition('/')[2]}"

    @property
    def on(self) -> str:
        """The station's device, as text for display."""
        kind = SEATS[self.kind]
        return (kind.takes_gpu and self.device) or kind.title

    @property
    def used(self) -> int:
        """How many of the station's slots are in use."""
        return sum(self.leases.values())

    @property
    def jobs(self) -> str:
        """The station's jobs with the slots of each job, as text for display."""
        return ", ".join(f"{job.rpartition('/')[2]} {slots}" for job, slots in self.leases.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job: the remaining segments, the slots that it may use and does use, and why it waits."""

    job: str
    client: str
    priority: int
    segments_left: int
    granted_slots: int
    used_slots: int
    waits_for: str  # why the job waits; "" if it does not
    title: str = ""  # the name of the job's input; "" without an input
    done_percent: int | None = None  # how much of the job is finished; None if its length is unknown
    left_s: float | None = None  # how long the remaining segments take at the workers' current speed; None if unknown

    @property
    def name(self) -> str:
        """The client's own name for the job: ``job`` without the name of the client."""
        return self.job.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group of nodes: its current, wanted and largest size, and the reason for the wanted size."""

    group: str
    there: int
    wanted: int
    nodes_max: int
    price_per_hour: str  # the price of one node, as an exact decimal
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingStatus:
    """The sizes and prices of a cluster's groups; prices are exact decimals."""

    groups: tuple[GroupStatus, ...]
    price_per_hour: str  # the price of all wanted nodes
    price_per_hour_max: str | None
    late: tuple[str, ...]  # which jobs will be late, and why
    trouble: str  # why Ray refuses orders; "" if it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a supervisor and of its whole cluster."""

    pid: int  # the supervisor's process id
    host: str
    nodes: tuple[NodeStatus, ...]
    devices: tuple[DeviceStatus, ...]
    workers: tuple[WorkerStatus, ...]
    jobs: tuple[JobStatus, ...]
    quarantine: tuple[str, ...]
    log: tuple[tuple[float, str], ...]  # the newest events as (seconds since 1970, line), oldest first
    autoscaling: AutoscalingStatus | None = None  # None if the supervisor does not resize the cluster
    release: str = ""  # the supervisor's version of codecfleet

    @property
    def present(self) -> tuple[WorkerStatus, ...]:
        """The stations that are not empty."""
        return tuple(worker for worker in self.workers if worker.state != StationState.EMPTY.value)

    @property
    def ready(self) -> tuple[WorkerStatus, ...]:
        """The stations whose process accepts work."""
        return tuple(worker for worker in self.workers if worker.state == StationState.READY.value)

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return asdict(self)


def status_of(
    state: SupervisorState,
    fps: Mapping[WorkerId, float],
    log: tuple[tuple[float, str], ...],
    now_s: float,
    heard_s: Mapping[WorkerId, float] = MappingProxyType({}),
) -> Status:
    """Return the supervisor's status; all lists are in a fixed order."""
    leases: dict[str, dict[str, int]] = {}
    for job in state.clients.jobs():
        for worker, held in job.held.items():
            if held:
                leases.setdefault(worker, {})[job.key] = held
    workers = tuple(
        _worker(state, station, leases, fps, now_s, heard_s=heard_s.get(station.worker))
        for _, station in sorted(state.stations.items())
    )
    devices = tuple(
        device_status(state.nodes.title(node.ray.node), device, node, now_s)
        for node in state.nodes
        for device in node.node.gpus
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
            *(_quarantined(device) for device in devices if device.quarantine),
        ),
        autoscaling=_autoscaling(state),
        log=log,
        release=VERSION,
    )


def _autoscaling(state: SupervisorState) -> AutoscalingStatus | None:
    config, decision = state.settings.autoscale, state.scaling.decision
    if config is None:
        return None
    sized = [(group, decision.size(group.name)) for group in config.groups]
    groups = tuple(
        GroupStatus(
            group=group.name,
            there=size.there,
            wanted=size.wanted,
            nodes_max=group.nodes_max,
            price_per_hour=str(group.price_per_hour),
            reason=size.reason,
        )
        for group, size in sized
    )
    return AutoscalingStatus(
        groups=groups,
        price_per_hour=str(sum(size.wanted * group.price_per_hour for group, size in sized)),
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
        skew_s=None if node.skew_s is None else round(node.skew_s, 1),
        clock=node.clock,
    )


def _quarantined(device: DeviceStatus) -> str:
    left_s = device.quarantine["trial_in_s"]
    until = "until it is uncordoned" if left_s is None else f"next trial in {left_s:.0f} s"
    return f"{device.name} ({device.device}) since {device.quarantine['since']}, {until}: {device.reason}"


def _worker(
    state: SupervisorState,
    station: StationBook,
    leases: Mapping[str, dict[str, int]],
    fps: Mapping[WorkerId, float],
    now_s: float,
    *,
    heard_s: float | None,
) -> WorkerStatus:
    return WorkerStatus(
        worker=station.station.station,
        node=state.nodes.title(station.station.node),
        kind=station.station.kind.seat,
        state=station.state.value,
        since_s=round(now_s - station.since_s, 1),
        reason=station.reason,
        pid=None if station.facts is None else station.facts.pid,
        device=station.device,
        slots=station.ready_slots or station.station.slots,
        leases=leases.get(station.worker, {}),
        fps=fps.get(station.worker) if station.facts is not None else None,
        heard_s=None if station.facts is None or heard_s is None else round(heard_s, 3),
    )


def _speed(job: JobBook, leases: Mapping[str, dict[str, int]], fps: Mapping[WorkerId, float]) -> float:
    """Return a job's share of the speed of its workers, in proportion to the slots that it uses."""
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
