"""A simulated cluster: work arrives over a day, and the autoscaler requests and ends nodes.

Only the nodes are simulated: ``cluster/autoscale`` and a real supervisor decide which nodes there should be. A node
costs money from the moment of its request. A segment takes as long as on a node whose sessions are all busy.
"""

import heapq
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Final

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.autoscale.deciding import decide
from codecfleet.cluster.autoscale.later import LaterDemand
from codecfleet.cluster.autoscale.values import Decision, JobWork, NodeSeen
from codecfleet.cluster.worker_names import NodeId
from codecfleet.jobs.batch.pacing import PlannedFiles, wants_file

ROUNDING: Final = 1e-9
FILES_AT_ONCE: Final = 64
"""The default of ``--files-at-once``."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work: for each group, a node's source frames per second and concurrent segments.

    Groups without an entry cannot do this work.
    """

    fps: Mapping[str, float]
    sessions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """An arriving job. ``within_s`` is the user's deadline; None means the deadline of the configuration.

    A job of several ``files`` is a batch: each file is a job with these values, and arrives when the batch has room.
    """

    at_s: float
    kind: str
    segments: int
    segment_frames: int
    within_s: float | None = None
    files: int = 1


@dataclass(slots=True)
class _Batch:
    number: int
    arrival: Arrival
    waiting: int
    in_flight: "dict[int, _Job]" = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    number: int
    arrival: Arrival
    waiting: int
    running: int = 0
    done_s: float | None = None
    batch: _Batch | None = None

    @property
    def left(self) -> int:
        return self.waiting + self.running


@dataclass(slots=True)
class _Node:
    name: str
    group: Group
    asked_s: float
    ready_s: float
    running: dict[str, int] = field(default_factory=dict)
    """Segments by kind."""
    load: float = 0.0
    idle_since_s: float | None = None
    rests: bool = False

    @property
    def is_busy(self) -> bool:
        return any(self.running.values())


@dataclass(frozen=True, slots=True)
class _Run:
    node: _Node
    job: _Job


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of a group's wanted number of nodes."""

    at_s: float
    group: str
    is_more: bool


@dataclass(slots=True)
class Day:
    """The results of a day.

    ``cost`` is the cost of the nodes; ``counts`` are (time, requested nodes by group) after changes. ``broken`` names
    each exceeded limit, and each node that was ended while it had work.
    """

    cost: float = 0.0
    finished: dict[int, float] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    counts: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    starts: int = 0
    most: int = 0
    looks: int = 0
    decide_s: float = 0.0
    ended_s: float = 0.0

    def changes_of_direction(self, group: str, hour_s: float = 3600.0) -> int:
        """Return the largest number of times within an hour that a group switched between growing and shrinking."""
        own = [turn for turn in self.turns if turn.group == group]
        changes = [now.at_s for before, now in pairwise(own) if before.is_more != now.is_more]
        return max((sum(at_s <= other < at_s + hour_s for other in changes) for at_s in changes), default=0)


class Cluster:
    """A simulated cluster, which runs until all jobs are done and every node that may end has ended.

    ``tells_later`` is whether batches report the demand of their waiting files.
    """

    def __init__(
        self, config: AutoscaleConfig, kinds: Mapping[str, Kind], look_s: float = 10.0, *, tells_later: bool = True
    ) -> None:
        self._tells_later = tells_later
        self._batches: list[_Batch] = []
        self._numbers = count(1_000_000)
        self._config = config
        self._kinds = kinds
        self._look_s = look_s
        self._nodes_min = sum(group.nodes_min for group in config.groups)
        self._groups = {group.name: group for group in config.groups}
        self._nodes: dict[str, _Node] = {}
        self._jobs: dict[int, _Job] = {}
        self._queues: dict[str, deque[_Job]] = {kind: deque() for kind in kinds}
        self._names = count()
        self._decision: Decision | None = None
        self._order = count()
        self._events: list[tuple[float, int, str, object]] = []
        self.day = Day()

    def run(self, arrivals: Iterable[Arrival], until_s: float) -> Day:
        """Play everything; work that has not ended by ``until_s`` counts as unfinished."""
        for number, arrival in enumerate(sorted(arrivals, key=lambda each: each.at_s)):
            is_batch = arrival.files > 1
            job = _Batch(number, arrival, arrival.files) if is_batch else _Job(number, arrival, arrival.segments)
            self._at(arrival.at_s, "arrive", job)
        self._at(0.0, "look", None)
        while self._events:
            now_s, _, what, subject = heapq.heappop(self._events)
            if now_s > until_s:
                break
            self._play(now_s, what, subject)
            self.day.ended_s = now_s
        for node in self._nodes.values():
            self._pay(node, self.day.ended_s)
        return self.day

    def _at(self, at_s: float, what: str, subject: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), what, subject))

    def _play(self, now_s: float, what: str, subject: object) -> None:
        if what == "look":
            self._look(now_s)
        elif what == "arrive" and isinstance(subject, _Job):
            self._begin(subject, now_s)
        elif what == "arrive" and isinstance(subject, _Batch):
            self._batches.append(subject)
            self._feed(now_s)
        elif what == "ready" and isinstance(subject, _Node):
            if subject.name in self._nodes:
                subject.idle_since_s = now_s
                self._feed(now_s)
                self._fill(subject, now_s)
        elif isinstance(subject, _Run):
            self._end_segment(subject.node, subject.job, now_s)

    def _begin(self, job: _Job, now_s: float) -> None:
        self._jobs[job.number] = job
        self._queues[job.arrival.kind].append(job)
        for node in self._nodes.values():
            self._fill(node, now_s)

    def _feed(self, now_s: float) -> None:
        """Begin files of batches: as many as a batch keeps in flight for the current sessions."""
        for batch in self._batches:
            sessions = self._kinds[batch.arrival.kind].sessions
            slots = sum(sessions.get(node.group.name, 0) for node in self._nodes.values() if node.ready_s <= now_s)
            while batch.waiting and wants_file(
                (job.left for job in batch.in_flight.values()), slots=slots, most=FILES_AT_ONCE
            ):
                batch.waiting -= 1
                arrival = replace(batch.arrival, at_s=now_s, files=1)
                job = _Job(next(self._numbers), arrival, arrival.segments, batch=batch)
                batch.in_flight[job.number] = job
                self._begin(job, now_s)

    def _fill(self, node: _Node, now_s: float) -> None:
        """Give a node waiting work until it is full, the earliest deadline first."""
        if node.ready_s > now_s or node.rests:
            return
        while (job := self._next_for(node)) is not None:
            kind = self._kinds[job.arrival.kind]
            sessions, fps = kind.sessions[node.group.name], kind.fps[node.group.name]
            job.waiting, job.running = job.waiting - 1, job.running + 1
            if not job.waiting:
                self._queues[job.arrival.kind].remove(job)
            node.running[job.arrival.kind] = node.running.get(job.arrival.kind, 0) + 1
            node.load += 1 / sessions
            node.idle_since_s = None
            self._at(now_s + job.arrival.segment_frames * sessions / fps, "segment", _Run(node, job))

    def _next_for(self, node: _Node) -> _Job | None:
        """Return the job with the earliest deadline if its segment fits: smaller jobs do not overtake a larger one."""
        name = node.group.name
        heads = [self._queues[kind][0] for kind, each in self._kinds.items() if self._queues[kind] and name in each.fps]
        job = min(heads, key=lambda job: (self._due_s(job), job.number), default=None)
        if job is None or node.load + 1 / self._kinds[job.arrival.kind].sessions[name] > 1 + ROUNDING:
            return None
        return job

    def _due_s(self, job: _Job) -> float:
        within_s = job.arrival.within_s
        return job.arrival.at_s + (self._config.finish_within_s if within_s is None else within_s)

    def _end_segment(self, node: _Node, job: _Job, now_s: float) -> None:
        if node.name not in self._nodes:
            self.day.broken.append(f"{node.name} was ended while it had work, at {now_s:.0f} s")
            return
        job.running -= 1
        node.running[job.arrival.kind] -= 1
        node.load -= 1 / self._kinds[job.arrival.kind].sessions[node.group.name]
        if not job.left:
            del self._jobs[job.number]
            self.day.finished[job.number] = now_s
            self.day.late[job.number] = max(0.0, now_s - self._due_s(job))
            if job.batch is not None:
                del job.batch.in_flight[job.number]
        self._feed(now_s)
        self._fill(node, now_s)
        if not node.is_busy:
            node.idle_since_s, node.load = now_s, 0.0

    def _look(self, now_s: float) -> None:
        self.day.looks += 1
        seen = [
            NodeSeen(
                node=NodeId(node.name),
                group=node.group.name,
                leases=sum(node.running.values()),
                idle_since_s=node.idle_since_s,
            )
            for node in self._nodes.values()
            if node.ready_s <= now_s
        ]
        work = [self._work(job) for job in self._jobs.values()]
        work += [self._later_work(batch, now_s) for batch in self._batches if self._tells_later]
        before, began_s = self._decision, time.perf_counter()
        self._decision = decide(self._config, work, seen, before, now_s)
        self.day.decide_s += time.perf_counter() - began_s
        self._obey(before or Decision(), self._decision, now_s)
        if self._events or self._jobs or len(self._nodes) > self._nodes_min:
            self._at(now_s + self._look_s, "look", None)

    def _work(self, job: _Job) -> JobWork:
        arrival, kind = job.arrival, self._kinds[job.arrival.kind]
        return JobWork(
            job=f"{job.number:06d}",
            frames=job.waiting * arrival.segment_frames + job.running * arrival.segment_frames // 2,
            at_once=job.left,
            waiting=job.waiting,
            longest_frames=arrival.segment_frames,
            due_s=self._due_s(job),
            is_promised=arrival.within_s is not None,
            fps=kind.fps,
            sessions=kind.sessions,
        )

    def _later_work(self, batch: _Batch, now_s: float) -> JobWork:
        arrival, kind = batch.arrival, self._kinds[batch.arrival.kind]
        planned = PlannedFiles(1, arrival.segments, arrival.segments * arrival.segment_frames)
        found = planned.later("", batch.waiting, FILES_AT_ONCE - len(batch.in_flight)) or LaterDemand("", 0, 0)
        return JobWork(
            job=f"behind {batch.number:06d}",
            frames=found.frames,
            at_once=found.segments,
            waiting=found.segments,
            longest_frames=arrival.segment_frames,
            due_s=now_s + self._config.finish_within_s,
            is_later=True,
            fps=kind.fps,
            sessions=kind.sessions,
        )

    def _obey(self, before: Decision, decision: Decision, now_s: float) -> None:
        for order in decision.drain:
            node = self._nodes.pop(order.node)
            if node.is_busy:
                self.day.broken.append(f"{node.name} was to be ended while it had work, at {now_s:.0f} s")
            self._pay(node, now_s)
        resting = {order.node for order in decision.surplus}
        for node in self._nodes.values():
            was_resting, node.rests = node.rests, node.name in resting
            if was_resting and not node.rests:
                self._fill(node, now_s)
        for size in decision.sizes:
            self._resize(self._groups[size.group], size.wanted, now_s)
            if size.wanted != (wanted := before.size(size.group).wanted):
                self.day.turns.append(Turn(now_s, size.group, size.wanted > wanted))
        self._check(decision, now_s)

    def _resize(self, group: Group, wanted: int, now_s: float) -> None:
        own = [node for node in self._nodes.values() if node.group is group]
        for node in [node for node in own if node.ready_s > now_s][: max(0, len(own) - wanted)]:
            self._pay(self._nodes.pop(node.name), now_s)
        for _ in range(wanted - len(own)):
            node = _Node(f"{group.name}-{next(self._names)}", group, now_s, now_s + group.start_s)
            self._nodes[node.name] = node
            self.day.starts += 1
            self._at(node.ready_s, "ready", node)

    def _pay(self, node: _Node, now_s: float) -> None:
        self.day.cost += node.group.price_per_s * (now_s - node.asked_s)

    def _check(self, decision: Decision, now_s: float) -> None:
        counts = {size.group: size.wanted for size in decision.sizes}
        if not self.day.counts or self.day.counts[-1][1] != counts:
            self.day.counts.append((now_s, counts))
        self.day.most = max(self.day.most, len(self._nodes))
        price = sum(node.group.price_per_hour for node in self._nodes.values())
        limit = self._config.price_per_hour_max
        if len(self._nodes) > self._config.nodes_max or (limit is not None and price > limit):
            self.day.broken.append(f"the limits of all groups at {now_s:.0f} s")
        for group in self._config.groups:
            own = sum(node.group is group for node in self._nodes.values())
            if not group.nodes_min <= own <= group.nodes_max:
                self.day.broken.append(f"{own} nodes of {group.name} at {now_s:.0f} s")


def least_cost(config: AutoscaleConfig, kinds: Mapping[str, Kind], arrivals: Sequence[Arrival]) -> float:
    """Return a lower bound of the cost of any cluster of these groups: each frame where it is cheapest, on a full node.

    A node does at most its ``fps`` of a kind of work, and costs money while it works. Starts, idle time and deadlines
    only add to this cost.
    """
    prices = {group.name: group.price_per_s for group in config.groups}
    frame = {name: min(prices[group] / fps for group, fps in kind.fps.items()) for name, kind in kinds.items()}
    return sum(each.files * each.segments * each.segment_frames * frame[each.kind] for each in arrivals)
