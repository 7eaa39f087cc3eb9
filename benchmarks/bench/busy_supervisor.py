"""A busy period of a supervisor: its share of a core, and how long worker deaths and new jobs wait for it."""

import heapq
import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from codecfleet.cluster.fleet.leases.lease_client import CALLS_AT_ONCE, COALESCE_S, RENEW_S
from codecfleet.cluster.supervisor.core.placing import next_pass_s
from codecfleet.cluster.supervisor.state import events
from codecfleet.cluster.supervisor.state.clients import client_of

from .supervised import Driver, World

if TYPE_CHECKING:
    from codecfleet.cluster.worker_names import StationId

TICK_S = 0.25
BUSY_S = 20.0
HAPPENS_EVERY_S = 1.0
"""Time between two worker deaths, and between two new jobs."""
DIES_S = 0.5
"""Time from a new job to the next worker death."""


class Busy:
    """A period in which segments end, drivers report them, workers die, and jobs arrive.

    Its clock is CPU time: events that arrive during a decision wait.
    """

    def __init__(self, world: World, drivers: Sequence[Driver], segment_s: float) -> None:
        self._world, self._drivers, self._segment_s = world, drivers, segment_s
        self._queue: list[tuple[float, int, str, int]] = []
        self._count = self._ticks_at = 0
        self._ended = [0.0] * len(drivers)
        # When the worker of each station died, and the last grants of the clients that used the worker.
        self._deaths: dict[StationId, tuple[float, dict[str, int]]] = {}
        self._comers: dict[str, float] = {}
        # The drivers that report soon, because none of their calls waits for news.
        self._silent: set[int] = set()
        self._replaced_s: list[float] = []
        self._begun_s: list[float] = []
        self._used_s = 0.0

    def run(self) -> dict[str, float]:
        """Run the period; return the figures."""
        start_s, passes = self._world.now_s, 0
        self._plan(start_s)
        while self._queue and self._queue[0][0] < start_s + BUSY_S:
            at_s, _, what, which = heapq.heappop(self._queue)
            self._world.now_s = max(self._world.now_s, at_s)
            placed_s = self._world.core.state.placed_s
            for event in self._events(at_s, what, which):
                self._decide(event)
            if self._world.core.state.placed_s != placed_s:
                passes += 1
            self._tick_soon()
            self._call_soon()
        return {
            "busy: part of a core": round(self._used_s / BUSY_S, 3),
            "busy: placements a second": passes / BUSY_S,
            "busy: median time from a death to new grants, s": median(self._replaced_s or [0.0]),
            "busy: longest time from a death to new grants and a new worker, s": max(self._replaced_s, default=0.0),
            "busy: longest time from a new job to its placement, s": max(self._begun_s, default=0.0),
        }

    def _push(self, at_s: float, what: str, which: int = 0) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, what, which))

    def _plan(self, start_s: float) -> None:
        for number in range(int(BUSY_S / TICK_S)):
            self._push(start_s + number * TICK_S, "tick")
        for number in range(1, int(BUSY_S / HAPPENS_EVERY_S)):
            self._push(start_s + number * HAPPENS_EVERY_S, "job", number)
            self._push(start_s + number * HAPPENS_EVERY_S - DIES_S, "death", number)
        for number, driver in enumerate(self._drivers):
            self._push(start_s + number / len(self._drivers) * self._every_s(driver), "report", number)

    def _every_s(self, driver: Driver) -> float:
        """Return how often a driver reports: whenever a segment ends, but not above a limit."""
        ends_every_s = self._segment_s / max(1, driver.slots)
        return min(RENEW_S, max(COALESCE_S * len(driver.jobs), ends_every_s))

    def _events(self, at_s: float, what: str, which: int) -> list[events.SupervisorEvent]:
        match what:
            case "report":
                driver = self._drivers[which]
                every_s = self._every_s(driver)
                self._ended[which] += every_s * driver.slots / self._segment_s
                driver.end_segments(int(self._ended[which]))
                self._ended[which] %= 1
                self._push(at_s + every_s, "report", which)
                client = self._world.core.state.clients.get(driver.name)
                is_waiting = client is not None and len(client.calls) >= CALLS_AT_ONCE
                return [] if is_waiting else [driver.report()]
            case "call":
                self._silent.discard(which)
                return [self._drivers[which].report()]
            case "death":
                # Stations that have lost a process are left out: after a second death within seconds, a restart waits
                # on purpose.
                book = [each for each in self._world.working() if not each.deaths_in_a_row][which]
                jobs = self._world.core.state.clients.at(book.worker)
                names = {client_of(job.key) for job in jobs if book.worker in job.promised}
                clients = {name: self._world.grants[name].number for name in names}
                self._deaths[book.station.station] = (at_s, clients)
                return [events.Died(book.worker, "it was killed")]
            case "job":
                new = Driver(self._world, f"new-{which}", 1)
                self._comers[f"{new.name}/{next(iter(new.jobs))}"] = at_s
                return [new.report()]
        return [events.Ticked(self._world.pass_s)]

    def _decide(self, event: events.SupervisorEvent) -> None:
        """Decide an event and its consequences, while the clock runs."""
        happened = [event]
        while happened:
            began_s = time.process_time()
            happened += self._world.decide(happened.pop(0))
            took_s = time.process_time() - began_s
            self._used_s += took_s
            self._world.now_s += took_s
        state, grants = self._world.core.state, self._world.grants
        for name, (died_s, clients) in [*self._deaths.items()]:
            is_up = state.stations[name].facts is not None
            if is_up and all(grants[each].number > number for each, number in clients.items()):
                self._replaced_s.append(self._world.now_s - died_s)
                del self._deaths[name]
        for job in [each for each in self._comers if state.plans.of(each).slots and client_of(each) in grants]:
            self._begun_s.append(self._world.now_s - self._comers.pop(job))

    def _call_soon(self) -> None:
        """Plan the next report of each driver that has no open call, as the lease client does."""
        clients = self._world.core.state.clients
        for number, driver in enumerate(self._drivers):
            client = clients.get(driver.name)
            if client is not None and not client.calls and number not in self._silent:
                self._silent.add(number)
                self._push(self._world.now_s + COALESCE_S, "call", number)

    def _tick_soon(self) -> None:
        """Plan the next placement, as the runner does."""
        state = self._world.core.state
        at_s = max(self._world.now_s, next_pass_s(state, self._world.pass_s))
        if state.is_dirty and not any(what == "pass" and due_s <= at_s for due_s, _, what, _ in self._queue):
            self._push(at_s, "pass")
