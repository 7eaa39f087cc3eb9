"""A supervisor's core, a simulated cluster that carries out every effect at once, and drivers that report to it."""

import math
import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from codecfleet.actors.worker.heartbeat import WorkerFacts
from codecfleet.cluster.fleet.leases.lease_client import RENEW_S
from codecfleet.cluster.placement.model.demand import PLAIN_FRAMES, plain_demand
from codecfleet.cluster.placement.model.inventory import Node
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.state import events
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import StationBook

from .large_fleet import CORES

STEP_S = 1e-3
"""Time between decisions, so short that no driver counts as silent."""
SEGMENTS = 20
SOME = 20


class World:
    """A core, and a cluster that carries out every effect at once, while the clock stands still."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.now_s = 0.0
        self.core = Core(SupervisorSettings(), Policy(), 1, self.now_s)
        self.nodes = nodes
        self.gpus = {
            f"{node.node}/gpu#{index}": device.device
            for node in nodes
            for index, device in enumerate(each for each in node.devices if not each.kind.is_processor)
        }
        self.grants: dict[str, Grants] = {}
        """The newest report of each driver."""
        self.pass_s = 0.0
        """How long a placement takes: the shorter of the last two, as for the runner."""
        self._took_s = math.inf

    def join(self) -> None:
        """List and probe every node."""
        listed = tuple(
            RayNode(node=node.node, name=node.name, cores=CORES, free_cores=CORES, gpus=len(node.devices) - 1)
            for node in self.nodes
        )
        self.feed([events.NodesSeen(listed), *(events.Probed(node) for node in self.nodes)])

    def decide(self, event: events.SupervisorEvent) -> list[events.SupervisorEvent]:
        """Let the core decide an event; return the events that its effects cause."""
        began_s, placed_s = time.process_time(), self.core.state.placed_s
        effects = self.core.decide(event, self.now_s)
        if self.core.state.placed_s != placed_s:
            took_s = time.process_time() - began_s
            self.pass_s, self._took_s = min(took_s, self._took_s), took_s
        return [answer for effect in effects if (answer := self._answer(effect)) is not None]

    def feed(self, happened: Sequence[events.SupervisorEvent]) -> None:
        """Let the core decide events and their consequences, with a placement after each change."""
        while happened:
            happened = [after for event in happened for after in self.decide(event)]
            if self.core.state.is_dirty:
                self.now_s += STEP_S
                happened += self.decide(events.Ticked())

    def _answer(self, effect: events.Effect) -> events.SupervisorEvent | None:
        match effect:
            case events.Reserve(worker, _, cores, _):
                return events.Reserved(worker, cores)
            case events.Start(worker, station, slots, _):
                return events.Started(worker, WorkerFacts(1, slots, self.gpus.get(station.station, "")))
            case events.AnswerReport(_, client, grants):
                self.grants[client] = pickle.loads(pickle.dumps(grants))
        return None

    def tick_often(self) -> None:
        """Let several ticks pass in which nothing has changed."""
        for _ in range(SOME):
            self.now_s += STEP_S
            self.decide(events.Ticked())

    def place(self, times: int = SOME) -> None:
        """Place everything repeatedly."""
        for _ in range(times):
            self.core.state.is_dirty = True
            self.now_s += STEP_S
            self.decide(events.Ticked())

    def working(self) -> list[StationBook]:
        """Return the stations of busy workers, one on each node."""
        state = self.core.state
        books = [book for name in state.plans.targets if (book := state.stations[name]).facts is not None]
        return list({book.station.node: book for book in books}.values())

    def die(self, books: Sequence[StationBook]) -> None:
        """Let workers die, one after the other, with a placement after each."""
        for book in books:
            self.decide(events.Died(book.worker, "it was killed"))
            self.now_s += STEP_S
            self.decide(events.Ticked())


class Driver:
    """A driver that reports."""

    def __init__(self, world: World, name: str, jobs: int) -> None:
        self.world, self.name, self.sequence = world, name, 0
        self.jobs = {f"job-{job:03d}": JobReport(plain_demand(f"job-{job:03d}", SEGMENTS)) for job in range(jobs)}
        self._turn = cycle(tuple(self.jobs))

    @property
    def slots(self) -> int:
        """The number of granted slots."""
        grants = self.world.grants.get(self.name, Grants({}))
        return sum(sum(slots.values()) for slots in grants.slots.values())

    def end_segments(self, count: int) -> None:
        """End segments of the driver's jobs in turn, in revoked slots first, and begin as many segments in new slots.

        A job without segments starts again with its initial number.
        """
        grants = self.world.grants.get(self.name, Grants({}))
        for job in islice(self._turn, count):
            said, granted = self.jobs[job], grants.slots.get(job, {})
            left = said.demand.segments[1:] or (PLAIN_FRAMES,) * SEGMENTS
            held = {worker: slots for worker, slots in said.held.items() if worker not in grants.dead}
            for change in (-1, 1):
                changed = (
                    each for each in {**held, **granted} if (granted.get(each, 0) - held.get(each, 0)) * change > 0
                )
                if (worker := next(changed, None)) is not None:
                    held[worker] = held.get(worker, 0) + change
            held = {worker: slots for worker, slots in held.items() if slots}
            self.jobs[job] = replace(said, demand=replace(said.demand, segments=left), held=held)

    def take_slots(self) -> None:
        """Let the driver's jobs use their granted slots."""
        slots = self.world.grants[self.name].slots
        self.jobs = {job: replace(said, held=dict(slots.get(job, {}))) for job, said in self.jobs.items()}

    def report(self, wait_s: float = RENEW_S) -> events.Renewed:
        """Return the driver's next report as the supervisor receives it: decoded from bytes."""
        self.sequence += 1
        known = self.world.grants.get(self.name)
        acknowledged = 0 if known is None else known.number
        jobs = tuple(self.jobs.values())
        report = ClientReport(self.name, self.name, self.sequence, jobs, acknowledged=acknowledged)
        return events.Renewed(pickle.loads(pickle.dumps(report)), wait_s)
