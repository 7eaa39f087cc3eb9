"""Turns the supervisor's events and state into samples, without Ray, clock or I/O."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from ....actors.worker.heartbeat import Heartbeat
from ...logs.actions import LogAction
from ...logs.writing import log
from ...placement.model.inventory import Device, DeviceState
from ...probes.report.absence import Maybe, Unavailable, known
from ...probes.report.device_kinds import SEATS
from ...probes.report.engines import MEDIA_ENGINES
from ...probes.vgpu.licence import NO_LICENCE, Licence
from ...worker_names import NodeId, WorkerId
from ..state import events
from ..state.clients import JobBook
from ..state.conditions import FULL_PERCENT, use_of
from ..state.events import SupervisorEvent
from ..state.messages import ClientReport
from ..state.nodes import NodeBook
from ..state.quarantine import key_of
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from . import table
from .table import LossCause, Metric, MetricSample, NodeUse, SessionOwner

GAUGES_S = 5.0
"""How often gauges are sampled; Ray exports them every 10 s."""

T = TypeVar("T")
TakeSamples = Callable[[tuple[MetricSample, ...]], None]
_NOTHING_DONE = Heartbeat(0, ())


class Metering:
    """Passes samples to ``take``, if set. A defect is logged once, and ends only the metrics."""

    def __init__(self, take: TakeSamples | None) -> None:
        self._take = take

    def measure(self, samples: Iterable[MetricSample]) -> None:
        """Compute samples and pass them on."""
        if self._take is None:
            return
        try:
            if found := tuple(samples):
                self._take(found)
        except Exception as error:  # noqa: BLE001 - a defect in metrics must not end the supervisor
            log(LogAction.DEFECT, "metrics are no longer measured", error=error)
            self._take = None


class MetricTally:
    """Turns a supervisor's events and state into samples."""

    def __init__(self, state: SupervisorState, now_s: float) -> None:
        self._state = state
        self._looked_s = self._gauges_at_s = now_s
        self._jobs: set[str] = set()  # the jobs at the last look
        self._waiting_since_s: dict[str, float] = {}  # since when each job has been without a slot
        # Quarantines already counted. None before the first look: an earlier supervisor has counted those found then.
        self._quarantined: dict[str, float] | None = None
        self._codecs: dict[WorkerId, str] = {}  # the codec to which each worker's jobs encode
        self._new: set[WorkerId] = set()  # workers that this supervisor started, until their first heartbeat

    def count(self, event: SupervisorEvent, now_s: float) -> Iterator[MetricSample]:
        """Yield an event's samples. Call it before the core handles the event, and take every sample."""
        match event:
            case events.Started(worker):
                if station := self._state.station(worker, StationState.STARTING):
                    self._new.add(worker)
                    yield MetricSample(table.WORKERS_STARTED, 1, (station.station.kind.seat,))
                    yield MetricSample(table.WORKER_START, now_s - station.since_s, (station.station.kind.seat,))
            case events.NotReserved(worker):
                if station := self._state.station(worker, StationState.RESERVING):
                    yield MetricSample(table.NOT_RESERVED, 1, (station.station.kind.seat,))
            case events.Died(worker):
                yield from self._lost(worker, self._cause_of_death(worker))
            case events.NodesSeen(nodes):
                yield from self._nodes_seen({node.node for node in nodes})
            case events.Renewed(report):
                yield from self._renewed(report)
            case events.Departed(client):
                self._remember(self._jobs_of(client).values())

    def compare(self, worker: WorkerId, before: Heartbeat, after: Heartbeat) -> Iterator[MetricSample]:
        """Yield the frames and work done between two heartbeats of a process, or before its first heartbeat."""
        station = self._state.station(worker, StationState.READY)
        if station is None:
            return
        before = _NOTHING_DONE if worker in self._new else before
        self._new.discard(worker)
        engine = station.station.kind.seat
        if (frames := after.frames_done - before.frames_done) > 0:
            codec = _codec_of(self._state.clients.at(worker)) or self._codecs.get(worker, table.NONE)
            decoded_by = (after if after.running else before).decoded_by.value
            yield MetricSample(table.FRAMES, frames, (engine, codec, decoded_by))
        for ending, count in after.ended.items():
            if (more := count - before.ended.get(ending, 0)) > 0:
                yield MetricSample(table.WORK_ENDED, more, (engine, ending.value))

    def look(self, fps: Mapping[WorkerId, float], now_s: float) -> Iterator[MetricSample]:
        """Yield the waits that have ended and, when gauges are due, the gauges, new quarantines, times and costs.

        ``fps`` has each worker's source frames a second.
        """
        yield from self._waits(now_s)
        if now_s >= self._gauges_at_s:
            self._gauges_at_s = now_s + GAUGES_S
            yield from self._times(now_s)
            yield from self._quarantines()
            yield from _gauges_of(self._state, fps, now_s)
            oldest_s = min(self._waiting_since_s.values(), default=now_s)
            yield MetricSample(table.QUEUE_AGE, now_s - oldest_s)
            self._codecs = {worker: codec for worker, codec in self._codecs.items() if self._state.is_live(worker)}
            self._new = set(filter(self._state.is_live, self._new))

    def _cause_of_death(self, worker: WorkerId) -> LossCause:
        node = self._state.nodes.get(worker.station.node)
        if node is not None and node.ray.draining:
            return LossCause.NODE
        return LossCause.START if self._state.station(worker, StationState.STARTING) else LossCause.DIED

    def _lost(self, worker: WorkerId, cause: LossCause) -> Iterator[MetricSample]:
        if station := self._state.station(worker, StationState.STARTING, StationState.READY):
            labels = (station.station.kind.seat, cause.value)
            yield MetricSample(table.WORKERS_LOST, 1, labels)
            if running := _used_slots(self._state, station):
                yield MetricSample(table.WORK_LOST, running, labels)

    def _nodes_seen(self, alive: set[NodeId]) -> Iterator[MetricSample]:
        gone = {node.ray.node for node in self._state.nodes} - alive
        for name, station in self._state.stations.items():
            if name.node in gone:
                yield from self._lost(station.worker, LossCause.NODE)

    def _renewed(self, report: ClientReport) -> Iterator[MetricSample]:
        self._remember(self._jobs_of(report.client).values())
        before = self._state.clients.get(report.client)
        seen = 0 if before is None else before.faults_seen
        for fault in report.faults:
            if fault.number > seen:
                yield MetricSample(table.DEVICE_FAULTS, 1, (fault.verdict.value,))
        for worker in report.written_off:
            yield from self._lost(worker, LossCause.HUNG)

    def _jobs_of(self, client: str) -> Mapping[str, JobBook]:
        found = self._state.clients.get(client)
        return {} if found is None else found.jobs

    def _remember(self, jobs: Iterable[JobBook]) -> None:
        """Keep the codecs of the jobs' workers, because frames may be counted after a job has ended."""
        for job in jobs:
            for worker in job.held:
                self._codecs[worker] = _codec_of((job,))

    def _waits(self, now_s: float) -> Iterator[MetricSample]:
        jobs = self._state.clients.jobs_by_key
        since_s = {key: self._waiting_since_s.get(key, now_s) for key, job in jobs.items() if _is_waiting(job)}
        for key in jobs.keys() - since_s.keys():
            # A new job that got a slot since the last look also counts as a wait; a job of an earlier supervisor does
            # not.
            is_new = key not in self._jobs and not self._state.is_recovering(now_s)
            if is_new or key in self._waiting_since_s:
                yield MetricSample(table.JOB_WAIT, now_s - self._waiting_since_s.get(key, now_s))
        self._waiting_since_s, self._jobs = since_s, set(jobs)

    def _times(self, now_s: float) -> Iterator[MetricSample]:
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        ready = [each for each in self._state.stations.values() if each.state is StationState.READY]
        yield from self._costs(ready, passed_s)
        for engine in SEATS:
            found = [each for each in ready if each.station.kind.seat == engine]
            used = sum(_used_slots(self._state, each) for each in found)
            for metric, count in ((table.WORKER_SECONDS, len(found)), (table.SLOT_SECONDS, used)):
                if count and passed_s > 0:
                    yield MetricSample(metric, count * passed_s, (engine,))

    def _costs(self, ready: list[StationBook], passed_s: float) -> Iterator[MetricSample]:
        if (config := self._state.settings.autoscale) is None:
            return
        busy = {each.station.node for each in ready if _used_slots(self._state, each)}
        costs = dict.fromkeys(NodeUse, 0.0)
        for node in self._state.nodes:
            if (group := config.group_of(node.ray.labels)) is not None:
                use = NodeUse.BUSY if node.ray.node in busy else NodeUse.IDLE
                costs[use] += group.price_per_s * passed_s
        for use, cost in costs.items():
            if cost > 0:
                yield MetricSample(table.COST, cost, (use.value,))

    def _quarantines(self) -> Iterator[MetricSample]:
        records = self._state.nodes.quarantines
        found = {key: record.quarantine for key, record in records.items() if record.quarantine is not None}
        before = self._quarantined
        self._quarantined = {key: quarantine.since_s for key, quarantine in found.items()}
        for key, quarantine in found.items():
            if before is not None and before.get(key) != quarantine.since_s:
                yield MetricSample(table.QUARANTINES, 1, (quarantine.cause.value,))


def _gauges_of(state: SupervisorState, fps: Mapping[WorkerId, float], now_s: float) -> Iterator[MetricSample]:
    """Yield a sample for each series of each gauge except the queue's age; zeros replace old values."""
    nodes = [each.node for each in state.nodes]
    devices = [device for node in nodes for device in node.gpus]
    yield from _counted(table.NODES, ((node.state.value,) for node in nodes))
    yield MetricSample(table.NODES_WANTED, sum(size.wanted for size in state.scaling.decision.sizes))
    yield MetricSample(table.GROUPS_CLOSED, _closed(state, now_s))
    yield MetricSample(table.CLOCK_SKEW, max((abs(each.skew_s or 0.0) for each in state.nodes), default=0.0))
    yield from _counted(table.DEVICES, ((device.kind.value, device.state.value) for device in devices))
    for book in state.nodes:
        yield from _of_devices(book, state.nodes.title(book.ray.node))
    yield from _workers(state, fps)
    yield from _queue(state)
    yield from _polled(state, devices)


def _closed(state: SupervisorState, now_s: float) -> int:
    until_s = (size.closed_until_s for size in state.scaling.decision.sizes)
    return sum(each is not None and now_s < each for each in until_s)


def _of_devices(book: NodeBook, title: str) -> Iterator[MetricSample]:
    """Yield the samples of each GPU, slice and vGPU of a node."""
    node = book.node
    for device in node.gpus:
        labels = (title, key_of(device.device, node.node, book.ray.name), device.kind.value)
        licence = _licence(book, device)
        state = table.NONE if licence is None else licence.state.value
        is_open = device.state is DeviceState.OPEN and node.state is DeviceState.OPEN
        yield MetricSample(table.DEVICE_OPEN, is_open, (*labels, device.driver, device.compatibility.value, state))
        yield MetricSample(table.DEVICE_QUARANTINED, device.state is DeviceState.QUARANTINED, labels)
        if licence is not None and licence.ends is not None:
            yield MetricSample(table.LICENCE_ENDS, licence.ends.timestamp(), labels)


def _licence(book: NodeBook, device: Device) -> Licence | None:
    """Return the licence that a device reports, else NO_LICENCE if its host reports an unlicensed vGPU, else None."""
    condition, hosted = book.conditions.get(device.device), book.hosted.get(device.device)
    if condition is not None and not isinstance(condition.seen.licence, Unavailable):
        return condition.seen.licence
    is_missing = hosted is not None and known(hosted.licensed, otherwise=True) is False
    return NO_LICENCE if is_missing else None


def _counted(metric: Metric, found: Iterable[tuple[str, ...]]) -> Iterator[MetricSample]:
    counts = Counter(found)
    for labels in product(*metric.labels.values()):
        yield MetricSample(metric, counts[labels], labels)


def _workers(state: SupervisorState, fps: Mapping[WorkerId, float]) -> Iterator[MetricSample]:
    stations = state.stations.values()
    yield from _counted(table.WORKERS, ((each.station.kind.seat, each.state.value) for each in stations))
    for engine in SEATS:
        ready = [each for each in stations if each.state is StationState.READY and each.station.kind.seat == engine]
        yield MetricSample(table.SLOTS, sum(each.ready_slots for each in ready), (engine,))
        yield MetricSample(table.SLOTS_IN_USE, sum(_used_slots(state, each) for each in ready), (engine,))
        yield MetricSample(table.SPEED, sum(fps.get(each.worker, 0.0) for each in ready), (engine,))


def _queue(state: SupervisorState) -> Iterator[MetricSample]:
    jobs = state.clients.jobs()
    phases = (table.DemandPhase.WAITING if _is_waiting(job) else table.DemandPhase.WORKING for job in jobs)
    yield MetricSample(table.CLIENTS, len(state.clients))
    yield from _counted(table.JOBS, ((phase.value,) for phase in phases))
    yield MetricSample(table.QUEUE_SEGMENTS, sum(len(job.demand.segments) for job in jobs))
    yield MetricSample(table.QUEUE_FRAMES, sum(sum(job.demand.segments) for job in jobs))


def _polled(state: SupervisorState, devices: Iterable[Device]) -> Iterator[MetricSample]:
    names = {device.device for device in devices}
    found = [each for node in state.nodes for name, each in node.conditions.items() if name in names]
    for engine in MEDIA_ENGINES:
        uses = _known(use_of(each.seen, engine) for each in found)
        mean = sum(uses) / len(uses) / FULL_PERCENT if uses else 0.0
        yield MetricSample(table.ENGINE_USE, mean, (engine.value,))
    memories = _known(each.seen.memory for each in found)
    yield MetricSample(table.GPU_MEMORY_USED, sum(memory.used_bytes for memory in memories))
    yield MetricSample(table.GPU_MEMORY, sum(memory.total_bytes for memory in memories))
    own = sum(each.encoding for each in state.stations.values())
    others = sum(each.encoder_sessions_others for each in found)
    yield MetricSample(table.ENCODER_SESSIONS, own, (SessionOwner.OURS.value,))
    yield MetricSample(table.ENCODER_SESSIONS, others, (SessionOwner.OTHERS.value,))


def _known(values: Iterable[Maybe[T]]) -> list[T]:
    return [value for value in values if not isinstance(value, Unavailable)]


def _is_waiting(job: JobBook) -> bool:
    """Return whether a job has segments left, but no slot and no running work."""
    return bool(job.demand.segments) and not any(job.promised.values()) and not any(job.held.values())


def _used_slots(state: SupervisorState, station: StationBook) -> int:
    return sum(job.held.get(station.worker, 0) for job in state.clients.at(station.worker))


def _codec_of(jobs: Iterable[JobBook]) -> str:
    """Return the codec to which jobs encode; "" without jobs."""
    found = [job.demand.renditions for job in jobs]
    codecs = {rendition.case.codec.value for renditions in found for rendition in renditions}
    if not codecs:
        return table.NONE if found else ""
    return codecs.pop() if len(codecs) == 1 else table.SEVERAL
