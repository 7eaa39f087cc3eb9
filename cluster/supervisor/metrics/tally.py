"""What happens, as samples: counters and histograms from the supervisor's events, without Ray, clock or I/O."""

from collections.abc import Iterable, Iterator, Mapping

from ...worker.heartbeat import Heartbeat
from ...worker_names import node_of, station_of
from ..state import events
from ..state.clients import JobBook
from ..state.events import SupervisorEvent
from ..state.messages import ClientReport, DeviceFault
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from . import table
from .gauges import gauges_of, is_waiting, used_slots
from .table import FaultVerdict, LossCause, MetricSample, NodeUse

GAUGES_S = 5.0
"""How often gauges are taken. Ray passes on what it has every 10 s."""

_NOTHING_DONE = Heartbeat(0, ())


class MetricTally:
    """Turns the events of the supervisor whose ``state`` this is into samples.

    It keeps since when jobs wait, which quarantines it has counted, and what each worker encodes.
    """

    def __init__(self, state: SupervisorState, now_s: float) -> None:
        self._state = state
        self._looked_s = self._gauges_at_s = now_s
        self._jobs: set[str] = set()
        self._waiting_since_s: dict[str, float] = {}
        self._quarantined: dict[str, float] | None = None
        """None until the first look: an earlier supervisor counted those that it finds."""
        self._codecs: dict[str, str] = {}
        self._new: set[str] = set()
        """Workers that started, and have not been heard of since; an adopted one's past is not counted again."""

    def hear(self, event: SupervisorEvent, now_s: float) -> Iterator[MetricSample]:
        """Yield what an event adds; to be called before the core takes it in, and read to its end."""
        match event:
            case events.Started(worker):
                yield from self._started(worker, now_s)
            case events.NotReserved(worker):
                if book := self._station(worker, StationState.RESERVING):
                    yield MetricSample(table.NOT_RESERVED, 1, (book.station.engine,))
            case events.Died(worker):
                yield from self._lost(worker, self._cause_of_death(worker))
            case events.NodesSeen(nodes):
                yield from self._nodes_seen({node.node for node in nodes})
            case events.Renewed(report):
                yield from self._renewed(report)
            case events.Departed(client):
                self._remember(self._jobs_of(client).values())

    def beat(self, worker: str, before: Heartbeat, after: Heartbeat) -> Iterator[MetricSample]:
        """Yield the frames and the ended work between two heartbeats of one process; of a new one, since its start."""
        book = self._station(worker, StationState.READY)
        if book is None:
            return
        before = _NOTHING_DONE if worker in self._new else before
        self._new.discard(worker)
        engine = book.station.engine
        if (frames := after.frames_done - before.frames_done) > 0:
            codec = _codec_of(self._state.clients.at(worker)) or self._codecs.get(worker, table.NONE)
            decoded_by = (after if after.running else before).decoded_by.value
            yield MetricSample(table.FRAMES, frames, (engine, codec, decoded_by))
        for ending, count in after.ended.items():
            if (more := count - before.ended.get(ending, 0)) > 0:
                yield MetricSample(table.WORK_ENDED, more, (engine, ending.value))

    def look(self, fps: Mapping[str, float], now_s: float) -> Iterator[MetricSample]:
        """Yield what time adds, and every gauge where that is due; ``fps`` are workers' speeds."""
        yield from self._waits(now_s)
        if now_s >= self._gauges_at_s:
            self._gauges_at_s = now_s + GAUGES_S
            yield from self._times(now_s)
            yield from self._quarantines()
            yield from gauges_of(self._state, fps)
            oldest_s = min(self._waiting_since_s.values(), default=now_s)
            yield MetricSample(table.QUEUE_AGE, now_s - oldest_s)
            self._codecs = {worker: codec for worker, codec in self._codecs.items() if self._state.is_live(worker)}
            self._new = set(filter(self._state.is_live, self._new))

    def _station(self, worker: str, *states: StationState) -> StationBook | None:
        book = self._state.stations.get(station_of(worker))
        return book if book is not None and book.worker == worker and book.state in states else None

    def _started(self, worker: str, now_s: float) -> Iterator[MetricSample]:
        if book := self._station(worker, StationState.STARTING):
            self._new.add(worker)
            yield MetricSample(table.WORKERS_STARTED, 1, (book.station.engine,))
            yield MetricSample(table.WORKER_START, now_s - book.since_s, (book.station.engine,))

    def _cause_of_death(self, worker: str) -> LossCause:
        node = self._state.nodes.get(node_of(station_of(worker)))
        if node is not None and node.ray.draining:
            return LossCause.NODE
        return LossCause.START if self._station(worker, StationState.STARTING) else LossCause.DIED

    def _lost(self, worker: str, cause: LossCause) -> Iterator[MetricSample]:
        if book := self._station(worker, StationState.STARTING, StationState.READY):
            labels = (book.station.engine, cause.value)
            yield MetricSample(table.WORKERS_LOST, 1, labels)
            if pieces := used_slots(self._state, book):
                yield MetricSample(table.WORK_LOST, pieces, labels)

    def _nodes_seen(self, alive: set[str]) -> Iterator[MetricSample]:
        gone = {book.ray.node for book in self._state.nodes} - alive
        if not gone:
            return
        for station, book in self._state.stations.items():
            if node_of(station) in gone:
                yield from self._lost(book.worker, LossCause.NODE)

    def _renewed(self, report: ClientReport) -> Iterator[MetricSample]:
        self._remember(self._jobs_of(report.client).values())
        before = self._state.clients.get(report.client)
        seen = 0 if before is None else before.faults_seen
        for fault in report.faults:
            if fault.number > seen:
                yield MetricSample(table.DEVICE_FAULTS, 1, (_kind_of(fault).value,))
        for worker in report.written_off:
            yield from self._lost(worker, LossCause.HUNG)

    def _jobs_of(self, client: str) -> Mapping[str, JobBook]:
        book = self._state.clients.get(client)
        return {} if book is None else book.jobs

    def _remember(self, jobs: Iterable[JobBook]) -> None:
        """Keep what workers encode for jobs: frames are counted when they may have gone."""
        for job in jobs:
            for worker in job.held:
                self._codecs[worker] = _codec_of((job,))

    def _waits(self, now_s: float) -> Iterator[MetricSample]:
        jobs = self._state.clients.jobs_by_key
        since_s = {key: self._waiting_since_s.get(key, now_s) for key, job in jobs.items() if is_waiting(job)}
        for key in jobs.keys() - since_s.keys():
            # A job that got its slot between two looks has waited, too; one that an earlier supervisor served has not.
            is_new = key not in self._jobs and not self._state.is_recovering(now_s)
            if is_new or key in self._waiting_since_s:
                yield MetricSample(table.JOB_WAIT, now_s - self._waiting_since_s.get(key, now_s))
        self._waiting_since_s, self._jobs = since_s, set(jobs)

    def _times(self, now_s: float) -> Iterator[MetricSample]:
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        ready = [book for book in self._state.stations.values() if book.state is StationState.READY]
        yield from self._costs(ready, passed_s)
        for engine in table.WORKER_ENGINES:
            books = [book for book in ready if book.station.engine == engine]
            used = sum(used_slots(self._state, book) for book in books)
            for metric, count in ((table.WORKER_SECONDS, len(books)), (table.SLOT_SECONDS, used)):
                if count and passed_s > 0:
                    yield MetricSample(metric, count * passed_s, (engine,))

    def _costs(self, ready: list[StationBook], passed_s: float) -> Iterator[MetricSample]:
        """Yield what the nodes that are there have cost, each as a whole: a price is a node's."""
        if (config := self._state.settings.autoscale) is None:
            return
        busy = {book.station.node for book in ready if used_slots(self._state, book)}
        costs = dict.fromkeys(NodeUse, 0.0)
        for node in self._state.nodes:
            if (group := config.group_of(node.ray.labels)) is not None:
                use = NodeUse.BUSY if node.ray.node in busy else NodeUse.IDLE
                costs[use] += group.price_per_s * passed_s
        for use, cost in costs.items():
            if cost > 0:
                yield MetricSample(table.COST, cost, (use.value,))

    def _quarantines(self) -> Iterator[MetricSample]:
        records = self._state.nodes.quarantines.records
        found = {key: record.quarantine for key, record in records.items() if record.quarantine is not None}
        before = self._quarantined
        self._quarantined = {key: quarantine.since_s for key, quarantine in found.items()}
        for key, quarantine in found.items():
            if before is not None and before.get(key) != quarantine.since_s:
                yield MetricSample(table.QUARANTINES, 1, (quarantine.cause.value,))


def _kind_of(fault: DeviceFault) -> FaultVerdict:
    if fault.is_doubtful:
        return FaultVerdict.DOUBTFUL
    return FaultVerdict.WRONG if fault.is_wrong else FaultVerdict.FAILED


def _codec_of(jobs: Iterable[JobBook]) -> str:
    """Return what jobs encode their tracks to, "" without a job."""
    found = [job.demand.renditions for job in jobs]
    codecs = {rendition.case.codec.value for renditions in found for rendition in renditions}
    if not codecs:
        return table.NONE if found else ""
    return codecs.pop() if len(codecs) == 1 else table.SEVERAL
