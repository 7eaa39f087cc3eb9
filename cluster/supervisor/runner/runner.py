"""Carries out the effects of ``core.Core``, and passes the results back to the core.

Everything runs on one event loop, in the cluster's supervisor actor or in a process with a private Ray.
"""

import asyncio
import itertools
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....actors.background import Background
from ....actors.worker.heartbeat import Heartbeat
from ....actors.worker.orders import OldTerm
from ...awake_clock import AwakeClock
from ...fleet_variables import EVENTS
from ...logs.actions import LogAction
from ...logs.writing import log
from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_words import first_line
from ...worker.worker import Worker
from ...worker_names import NodeId, StationId, WorkerId
from ..backends.backend import ClusterBackend, NoAnswer, in_time
from ..core.core import Core
from ..core.placing import next_pass_s
from ..core.previewing import growth, preview
from ..metrics.table import PLACEMENT, MetricSample
from ..metrics.tally import Metering, MetricTally, TakeSamples
from ..state import events
from ..state.events import Effect, Order, Probe, SupervisorEvent
from ..state.kept import ORDERS_KEY, QUARANTINES_KEY, pack_kept, unpack_orders, unpack_quarantines
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..state.silence import interval_s
from ..state.stations import IN_USE, StationState
from ..state.terms import Tenure, term_of
from ..status.history import History, WorkHistory
from ..status.past import EVENTS_KEY, NODES_KEY, Past, lost_nodes
from ..status.status import Status, status_of
from .client import SupervisorClient
from .heartbeats import Heartbeats
from .orders import Leading, Orders, Resizing
from .polling import Polling
from .recording import Recording, decide

TICK_S = 0.25
# If more time passes between two readings of the clock, this process was suspended, and only ``GAP_MAX_S`` counts.
GAP_MAX_S = 5.0
LOOK_S = 1.0  # how often the node table is read; that costs 0.4 ms
PROBE_LIMIT_S = 150.0
SWEEP_LOOKS = 60
SHUTDOWN_GRACE_S = 5.0  # how long ``close`` may take to stop the workers
PROBE_WAIT_S = 10.0  # how long a preview waits for the first probe of GPUs; shorter than the clients' timeout
PROBE_LOOK_S = 0.1
FRESH_S = 3.0  # slots are granted only if this supervisor was known to be the newest within this time
READY = frozenset({StationState.READY})
STOPPING = "stop"  # the name of the tasks that stop workers
_STILL_PROBING = PlacementPreview(unknown="the fleet's GPUs are still being probed", is_probing=True)


class SupervisorRunner(SupervisorClient):
    """A running supervisor, which clients in this process call.

    Args:
        clock: returns monotonic seconds for all times, without the time in which this process was suspended.
        sleep: waits for a number of seconds.
        take_samples: receives metric samples; None turns metrics off.
        on_failure: called after a failed task has ended the supervisor; ``failure`` says why.
    """

    what_next = "Run the command again; `codecfleet doctor` finds problems of this machine."

    def __init__(
        self,
        backend: ClusterBackend,
        core: Core,
        settings: SupervisorSettings,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        take_samples: TakeSamples | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend = backend
        self._core = core
        self._clock = clock = clock or AwakeClock(GAP_MAX_S)
        self._sleep = sleep
        self._on_failure = on_failure
        self.failure, self._is_open = "", False
        self._tasks = Background(self._fail)
        self._ticking: asyncio.Handle | None = None
        self._tick_at_s = 0.0  # the loop's time of the planned tick
        self._pass_s, self._took_s = 0.0, math.inf  # how long the shorter of the last two placements took, and the last
        self._calls: dict[int, asyncio.Future[Grants]] = {}
        folder = os.environ.get(EVENTS, "")
        self._recording = Recording(core, Path(folder)) if folder else None
        self._keeping = asyncio.Lock()
        self._tally = MetricTally(core.state, clock())
        self._metering = Metering(take_samples)
        self._history = WorkHistory(core.state.nodes.title)
        self._past = Past()
        self.leading = Leading(backend, Tenure(term_of(core.state.epoch), clock()), settings.fence_s, clock, sleep)
        self.resizing = Resizing(backend, self.leading, self.feed)
        self._heartbeats = Heartbeats(
            backend=backend,
            limit_s=settings.ping_limit_s,
            clock=clock,
            feed=self.feed,
            note=self._note_heartbeats,
            superseded=self.leading.superseded,
        )
        self._orders = Orders(backend, self.leading, settings, self.feed, self._heartbeats.forget)
        self._polling = Polling(
            backend=backend,
            state=core.state,
            settings=settings,
            heartbeats=self._heartbeats,
            feed=self.feed,
            spawn=self._tasks.spawn,
            clock=clock,
            sleep=sleep,
        )
        self._idle_since_s = clock()

    async def open(self) -> None:
        """Look at the cluster, adopt the workers of an earlier supervisor, and start. Idempotent."""
        if self._is_open:
            return
        self._is_open = True
        await self._recall_past()
        await self._look()
        if lost := lost_nodes(await self._backend.kept(NODES_KEY), {each.ray.node for each in self._core.state.nodes}):
            self._carry_out([events.Note(LogAction.NODE_GONE, lost)])
        self.feed(events.Found(await self._backend.find()))
        await self._recall()
        for worker in self._workers(READY):
            self._tasks.spawn("a worker's death", self._orders.await_death(worker))
        self._tasks.spawn("ticks", self._run_ticks())
        self._tasks.spawn("looks at nodes", self._run_looks())
        self._tasks.spawn("polls of GPUs", self._polling.run())

    def _workers(self, states: frozenset[StationState]) -> list[WorkerId]:
        return [each.worker for each in self._core.state.stations.values() if each.state in states]

    async def _recall_past(self) -> None:
        if self._past.recall(await self._backend.kept(EVENTS_KEY), time.time()):
            self._past.note(f"the supervisor of term {term_of(self._core.state.epoch)} takes over", time.time())

    async def _recall(self) -> None:
        for node, order in unpack_orders(await self._backend.kept(ORDERS_KEY)).items():
            self.feed(events.Asked(order, node, is_recalled=True))
        packed = await self._backend.kept(QUARANTINES_KEY)
        self.feed(events.QuarantinesRecalled(unpack_quarantines(packed, self._clock())))

    async def _keep(self, key: str, value: bytes) -> None:
        async with self._keeping:  # an older value must not overtake a newer one
            if await self.leading.leads():
                await self._backend.keep(key, value)

    async def _keep_past(self) -> None:
        with suppress(Exception):  # the next call stores the value
            nodes = {each.ray.node: self._core.state.nodes.title(each.ray.node) for each in self._core.state.nodes}
            await self._past.keep(self._keep, self._clock(), nodes)

    async def close(self, reason: str = "the pool was closed") -> None:
        """Stop every worker, release everything, and stop."""
        self.feed(events.Ended(reason))
        if self._ticking is not None:
            self._ticking.cancel()
        await self._tasks.end(awaited=STOPPING, grace_s=SHUTDOWN_GRACE_S)

    def feed(self, event: SupervisorEvent) -> None:
        """Pass an event to the core, and carry out the effects; a tick follows if placement is due."""
        if isinstance(event, events.Died) and (gone := self._backend.world_is_gone()):
            event = events.Ended(gone)
        now_s, state = self._clock(), self._core.state
        self._metering.measure(self._tally.count(event, now_s))
        decided = decide(self._core, event, now_s)
        if state.placed_s == now_s:
            took_s = self._clock() - now_s
            self._pass_s, self._took_s = min(took_s, self._took_s), took_s
            self._metering.measure((MetricSample(PLACEMENT, took_s),))
        if decided.defect:
            self._past.note(f"defect: {decided.defect}", time.time())
            log(LogAction.DEFECT, f"a decision failed: {decided.defect}")
        if self._recording is not None:
            with suppress(OSError):  # a full disk must not end the supervisor
                self._recording.note(decided)
        self._carry_out(decided.effects)
        if state.is_dirty and not state.end:
            self._tick_in(max(0.0, next_pass_s(state, self._pass_s) - self._clock()))

    def _tick_in(self, wait_s: float) -> None:
        loop, planned = asyncio.get_running_loop(), self._ticking
        at_s = loop.time() + wait_s
        if planned is None or at_s < self._tick_at_s:
            # The time is kept here, because uvloop, which Ray uses if it is installed, returns a handle without a time
            # for a wait of 0.
            self._ticking, self._tick_at_s = loop.call_later(wait_s, self._tick), at_s
            if planned is not None:
                planned.cancel()

    def _tick(self) -> None:
        self._ticking = None
        self.feed(events.Ticked(self._pass_s))

    async def renew(self, report: ClientReport, wait_s: float = 0.0) -> Grants:
        """Take a report; return the client's grants when they change, when a newer report comes, or after ``wait_s``.

        Raises OldTerm: another supervisor grants slots now.
        """
        if any(job.demand.may_use_gpu for job in report.jobs):
            self._backend.want_gpus()
        answer: asyncio.Future[Grants] = asyncio.get_running_loop().create_future()
        self._calls[self._core.state.event + 1] = answer
        self.feed(events.Renewed(report, wait_s))
        grants = await answer
        await self.leading.look(older_than_s=FRESH_S)
        if self.leading.over:
            raise OldTerm(self.leading.over)
        return grants

    def recorded(self) -> bytes:
        """Return the newest events and decisions; b"" if nothing is recorded."""
        return b"" if self._recording is None else self._recording.packed()

    def world_is_gone(self) -> str:
        return self._backend.world_is_gone()

    def growth(self, demand: Demand) -> str:
        """Return which nodes would be requested for a job with this demand, or why not; "" without autoscaling."""
        return growth(self._core.state, demand)

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed on this machine.

        A demand that cannot do without a GPU or DLA waits until the GPUs are probed.
        """
        until_s = self._clock() + PROBE_WAIT_S
        if demand.may_use_gpu:
            await self._backend.know_gpus()
        await self._look()
        if demand.needs_devices:
            self._backend.want_gpus()
            if not await self._are_probed(until_s):
                return _STILL_PROBING
        return preview(self._core.state, demand, nodes_may_join=False)

    async def probed_preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed on a cluster. A demand that may use NVENC waits for probes of GPUs."""
        if demand.chooses_encoder and not await self._are_probed(self._clock() + PROBE_WAIT_S):
            return _STILL_PROBING
        return preview(self._core.state, demand, nodes_may_join=True)

    async def _are_probed(self, until_s: float) -> bool:
        """Wait until every GPU has been probed; return False if the time ``until_s`` comes first."""
        while not all(node.is_known for node in self._core.state.nodes):
            if self._clock() >= until_s:
                return False
            await self._sleep(PROBE_LOOK_S)
        return True

    async def depart(self, client: str) -> None:
        """Remove a client, and cancel its work."""
        self.feed(events.Departed(client))

    def ask(self, order: Order, node: NodeId) -> bool:
        """Cordon, drain or uncordon a node for a user; return False unless exactly one node matches the name."""
        known = self._core.state.nodes.find(node) is not None
        self.feed(events.Asked(order, node))
        return known

    def is_left(self, node: NodeId) -> bool:
        """Return whether Ray is draining this node but not all nodes."""
        return self._core.state.nodes.is_left(node)

    def status(self) -> Status:
        """Return the status of the supervisor and of the whole cluster."""
        beats = self._heartbeats
        return status_of(self._core.state, dict(beats.fps), self._past.events, self._clock(), beats.heard_s())

    def history(self, stations: Iterable[StationId]) -> History:
        """Return the recent work of these stations and of lost workers, and the total speed of all workers."""
        return self._history.of(stations, self._core.state.is_live, self._clock())

    def _note_heartbeats(self, worker: WorkerId, before: Heartbeat, after: Heartbeat) -> None:
        self._metering.measure(self._tally.compare(worker, before, after))
        self._history.note(worker, after.pieces, self._clock())

    async def handle(self, worker: WorkerId) -> Worker:
        return self._backend.handle(worker)

    def send(self, content: bytes) -> Any:
        return self._backend.send(content)

    @property
    def idle_s(self) -> float:
        """How many seconds the supervisor has been idle, as ``SupervisorState.is_idle`` defines it."""
        return self._clock() - self._idle_since_s if self._core.state.is_idle else 0.0

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case events.Note(action, line, ids, is_shown):
                    if is_shown:
                        self._past.note(line, time.time())
                    log(action, line, ids)
                case events.AnswerReport(asked, _, grants):
                    if (answer := self._calls.pop(asked, None)) is not None and not answer.done():
                        answer.set_result(grants)
                case Probe(node):
                    self._tasks.spawn(f"probe of {node}", self._probe(effect))
                case events.Resize():
                    self._tasks.spawn("resizing", self.resizing.resize(effect))
                case events.Remember() | events.KeepQuarantines():
                    self._tasks.spawn("keeping", self._keep(*pack_kept(effect, self._clock())))
                case events.Stop():
                    self._tasks.spawn(STOPPING, self._orders.give(effect))
                case _:
                    self._tasks.spawn(f"order {effect}", self._orders.give(effect))

    def _fail(self, task: str, error: BaseException) -> None:
        """End the supervisor after the first failure of a task; another supervisor takes over."""
        if self.failure:
            return
        self._tasks.stop()
        self.failure = f"the supervisor's task failed: {task}: {first_line(error)}"
        log(LogAction.DEFECT, self.failure, error=error)
        self.feed(events.Ended(self.failure))
        self._on_failure()

    async def _probe(self, effect: Probe) -> None:
        try:
            await in_time(self._backend.when_to_probe(again=effect.again), math.inf)
            node = await in_time(self._backend.probe(effect.node, again=effect.again), PROBE_LIMIT_S)
        except NoAnswer as reason:
            self.feed(events.ProbeFailed(effect.node, str(reason)))
        else:
            known = self._core.state.nodes.get(node.node)
            if known is not None and known.ray.unlisted:  # the probe has listed the node's GPUs, and jobs need the list
                with suppress(Exception):  # the last view stays valid if the node table cannot be read
                    await self._look()
            self.feed(events.Probed(node))

    async def _look(self) -> None:
        self.feed(events.NodesSeen(await self._backend.look(), time.time(), self._heartbeats.skews_s()))

    async def _run_ticks(self) -> None:
        heartbeat_at_s = self._clock()
        while True:
            await self._sleep(TICK_S)
            self.feed(events.Ticked(self._pass_s))
            self._metering.measure(self._tally.look(self._heartbeats.fps, self._clock()))
            if self._core.state.end:
                continue  # the core still answers clients; there is nothing else to do
            if gone := self._backend.world_is_gone():
                self.feed(events.Ended(gone))
                continue
            if not self._core.state.is_idle:
                self._idle_since_s = self._clock()
            if self._clock() >= heartbeat_at_s and not self.leading.over:
                workers = self._workers(READY)
                heartbeat_at_s = self._clock() + interval_s(len(workers))
                self._history.look(sum(self._heartbeats.fps.values()), self._clock())
                if not self._keeping.locked():  # an earlier call may still wait for Ray
                    self._tasks.spawn("keeping of the past", self._keep_past())
                self._heartbeats.report_silent(workers)
                for worker in filter(self._heartbeats.is_due, workers):
                    self._tasks.spawn(f"heartbeat of {worker}", self._heartbeats.read(worker))

    async def _run_looks(self) -> None:
        for look in itertools.count(1):
            await self._sleep(LOOK_S)
            if not await self.leading.leads():
                return
            with suppress(Exception):  # the last view stays valid if the node table cannot be read
                await self._look()
            if look % SWEEP_LOOKS == 0:
                with suppress(Exception):  # the next sweep tries again
                    await self._backend.sweep(frozenset(self._workers(IN_USE)))
