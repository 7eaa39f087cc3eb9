"""Carries out what the core decides, and feeds back the results: the async shell around ``core.Core``.

Everything runs on one event loop, in the cluster's supervisor actor or in a process with an embedded Ray.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from ...awake_clock import AwakeClock
from ...logs.actions import LogAction
from ...logs.writing import log
from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_words import first_line
from ...worker.heartbeat import Heartbeat
from ...worker.worker import Worker
from ..backends.backend import ClusterBackend
from ..core.core import Core
from ..metrics.metering import Metering, TakeSamples
from ..state import events
from ..state.events import Effect, Order, Probe, SupervisorEvent
from ..state.kept import ORDERS_KEY, QUARANTINES_KEY, pack_kept, unpack_orders, unpack_quarantines
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..state.stations import IN_USE, StationState
from ..state.terms import term_of
from ..status.history import History, HistoryBook
from ..status.past import EVENTS_KEY, NODES_KEY, SPEEDS_KEY, Past, lost_nodes
from ..status.status import Status, status_of
from .heartbeats import Heartbeats
from .leading import Leading
from .polling import Polling
from .renewals import Renewals
from .resizing import Resizing
from .worker_orders import WorkerOrders

TICK_S = 0.25
GAP_MAX_S = 5.0
"""A longer time between two ticks was a suspended process's; clients and workers were not silent for it."""
LOOK_S = 1.0
"""How often the node table is read; that costs 0.4 ms."""
HEARTBEAT_S = 2.0
PROBE_LIMIT_S = 150.0
SWIFT_S = 0.005
RESTS_PER_WORK = 5
"""A slow conclusion is drawn so rarely that most of the time is left for answering."""
SWEEP_LOOKS = 60
SHUTDOWN_GRACE_S = 5.0
"""How long stopping the workers may take on close."""
PROBE_WAIT_S = 10.0
"""How long a preview waits for the first probe of GPUs; less than clients wait for an answer."""
PROBE_LOOK_S = 0.1
_STILL_PROBING = PlacementPreview(unknown="the fleet's GPUs are still being probed", is_probing=True)


class SupervisorRunner:
    """A running supervisor; ``clock`` returns monotonic seconds in which it ran, and is the core's clock too.

    ``take_samples`` is passed what monitoring is to know, where that is to know anything.
    """

    def __init__(
        self,
        backend: ClusterBackend,
        core: Core,
        settings: SupervisorSettings,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        take_samples: TakeSamples | None = None,
    ) -> None:
        self._backend = backend
        self._core = core
        self._settings = settings
        self._clock = clock = clock or AwakeClock(GAP_MAX_S)
        self._sleep = sleep
        self._tasks: set[asyncio.Task[None]] = set()
        self._conclusion: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._rest_until_s = 0.0
        self._settles_at_s = 0.0
        self._recovering = False
        self._keeping = asyncio.Lock()
        self.leading = Leading(backend, term_of(core.state.epoch), settings.fence_s, clock=clock, sleep=sleep)
        self.resizing = Resizing(backend, self.leading, self.feed)
        self._orders = WorkerOrders(backend, self.leading, settings, feed=self.feed, forget=self._forget)
        self._renewals = Renewals(core.state, self.leading, feed=self.feed, clock=clock)
        self._polling = Polling(
            backend, core.state, settings, feed=self.feed, spawn=self._spawn, clock=clock, sleep=sleep
        )
        self._metering = Metering(core.state, take_samples, clock)
        self._history = HistoryBook(core.state.nodes.title)
        self._heartbeats = Heartbeats(
            backend,
            settings.ping_limit_s,
            feed=self.feed,
            died=self._orders.report_death,
            note_speed=self._polling.note_speed,
            note_beats=self._note_beats,
            superseded=self.leading.superseded,
            clock=clock,
        )
        self._past = Past(self._history)
        self._idle_since_s = clock()

    async def open(self) -> None:
        """See what exists, adopt what an earlier supervisor left, and run."""
        await self._recall_past()
        seen = await self._backend.look()
        self._decide(events.NodesSeen(seen, time.time()))
        if lost := lost_nodes(await self._backend.kept(NODES_KEY), {each.node for each in seen}):
            self._carry_out([events.Note(LogAction.NODE_GONE, lost)])
        self._decide(events.Found(await self._backend.find()))
        await self._recall()
        for book in list(self._core.state.stations.values()):
            if book.state is StationState.READY:
                self._spawn(self._orders.await_death(book.worker))
        self._spawn(self._run_ticks())
        self._spawn(self._run_looks())
        self._spawn(self._polling.run())

    async def _recall_past(self) -> None:
        lines, speeds = await self._backend.kept(EVENTS_KEY), await self._backend.kept(SPEEDS_KEY)
        if self._past.recall(lines, speeds, self._clock(), self._utc_offset_s()):
            self._past.note(f"the supervisor of term {term_of(self._core.state.epoch)} takes over", time.time())

    async def _recall(self) -> None:
        for node, order in unpack_orders(await self._backend.kept(ORDERS_KEY)).items():
            self.feed(events.Asked(order, node, is_recalled=True))
        packed = await self._backend.kept(QUARANTINES_KEY)
        self.feed(events.QuarantinesRecalled(unpack_quarantines(packed, self._utc_offset_s())))

    async def _keep(self, key: str, value: bytes) -> None:
        async with self._keeping:  # an older value must not overtake a newer one
            if await self.leading.leads():
                await self._backend.keep(key, value)

    async def _keep_past(self) -> None:
        with suppress(Exception):  # the next one tries again
            nodes = {each.ray.node: self._core.state.nodes.title(each.ray.node) for each in self._core.state.nodes}
            await self._past.keep(self._keep, self._clock(), self._utc_offset_s(), nodes)

    def _utc_offset_s(self) -> float:
        return time.time() - self._clock()

    async def close(self, reason: str) -> None:
        """Stop every worker, release everything, and stop."""
        self.feed(events.Ended(reason))
        stopping = [task for task in self._tasks if task.get_name() == "stop"]
        for task in self._tasks - set(stopping):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SHUTDOWN_GRACE_S)

    def feed(self, event: SupervisorEvent) -> None:
        """Pass an event to the core; its direct effects start at once, its consequences soon."""
        self._metering.hear(event)
        self._carry_out(self._decided(partial(self._core.take_in, event)))
        if self._conclusion is None:
            rest_s = max(0.0, self._rest_until_s - self._clock())
            self._conclusion = asyncio.get_running_loop().call_later(rest_s, self._conclude)

    def _decide(self, event: SupervisorEvent) -> None:
        """Pass an event to the core, and start all that follows at once."""
        self._metering.hear(event)
        self._carry_out(self._decided(partial(self._core.decide, event)))

    def _conclude(self) -> None:
        """Conclude from all events since the last time; less often where that takes long.

        What concerns single nodes does not wait for a look at everything.
        """
        began_s = self._clock()
        self._conclusion = None
        may_settle = began_s >= self._settles_at_s
        state = self._core.state
        was_recovering, self._recovering = self._recovering, state.is_recovering(began_s)
        self._carry_out(self._decided(partial(self._core.conclude, may_settle=may_settle)))
        took_s = self._clock() - began_s
        rested_at_s = began_s + took_s * RESTS_PER_WORK if took_s > SWIFT_S else 0.0
        if state.has_settled:
            self._settles_at_s = rested_at_s
            self._metering.placed(took_s)
        else:
            self._rest_until_s = rested_at_s
        if not may_settle:
            self._settle_later()
        is_news = state.has_news or self._recovering != was_recovering
        self._renewals.concluded(is_news=is_news, is_settled=may_settle or state.is_settled)

    def _settle_later(self) -> None:
        """Look at everything as soon as that may be, where it has to be."""
        if not self._core.state.is_settled and self._settling is None:
            rest_s = max(0.0, self._settles_at_s - self._clock())
            self._settling = asyncio.get_running_loop().call_later(rest_s, self._settle)

    def _settle(self) -> None:
        self._settling = None
        self._conclude()

    def _decided(self, decide: Callable[[float], list[Effect]]) -> list[Effect]:
        """Return the core's decision; a defect is logged, and costs this decision alone."""
        try:
            return decide(self._clock())
        except Exception as error:  # noqa: BLE001 - a defect of ours must not end the supervisor
            self._say_defect("a decision failed", error)
            return []

    async def renew(self, report: ClientReport, wait_s: float = 0.0) -> Grants:
        """Take a report; return the client's grants when they change, a newer report comes, or ``wait_s`` is over.

        Raises:
            OldTerm: another supervisor grants slots now.
        """
        if any(job.demand.may_use_gpu for job in report.jobs):
            self._backend.want_gpus()
        return await self._renewals.renew(report, wait_s)

    def world_is_gone(self) -> str:
        """Return why what it acts on is lost; "" while it is not. Thread-safe."""
        return self._backend.world_is_gone()

    def preview(self, demand: Demand, *, nodes_may_join: bool) -> PlacementPreview:
        """Return where a demand would be placed."""
        return self._core.preview(demand, nodes_may_join=nodes_may_join)

    def growth(self, demand: Demand) -> str:
        """Return which nodes would be asked for where such a job came, and why; "" where the cluster does not grow."""
        return self._core.growth(demand)

    async def preview_here(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed on this machine, which no node joins.

        If it may use a GPU, this waits until they are known; if it must, ``PROBE_WAIT_S`` also for those that have to
        be probed.
        """
        until_s = self._clock() + PROBE_WAIT_S
        if demand.may_use_gpu:
            await self._backend.know_gpus()
        self.feed(events.NodesSeen(await self._backend.look(), time.time()))
        if demand.needs_devices:
            self._backend.want_gpus()
            if not await self._are_probed(until_s):
                return _STILL_PROBING
        return self.preview(demand, nodes_may_join=False)

    async def probed_preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed on a cluster, which nodes may join at any time.

        If it may use NVENC, this waits ``PROBE_WAIT_S`` for GPUs that were never probed.
        """
        if demand.chooses_encoder and not await self._are_probed(self._clock() + PROBE_WAIT_S):
            return _STILL_PROBING
        return self.preview(demand, nodes_may_join=True)

    async def _are_probed(self, until_s: float) -> bool:
        """Wait until no GPU is left that was never probed; return whether that was so by then."""
        while self._core.is_probing:
            if self._clock() >= until_s:
                return False
            await self._sleep(PROBE_LOOK_S)
        return True

    def depart(self, client: str) -> None:
        """Remove a client."""
        self._renewals.depart(client)

    def ask(self, order: Order, node: str) -> bool:
        """Cordon, drain or uncordon a node for a user; False if no node, or several, match the name."""
        known = self._core.state.nodes.find(node) is not None
        self.feed(events.Asked(order, node))
        return known

    def is_left(self, node: str) -> bool:
        """Return whether a node leaves the cluster, and another one stays."""
        return self._core.state.nodes.is_left(node)

    def status(self) -> Status:
        """Return the full status."""
        return status_of(self._core.state, dict(self._heartbeats.fps), self._past.events, self._clock())

    def history(self, stations: Iterable[str]) -> History:
        """Return what these stations did lately, and those that are gone, and how fast all were."""
        return self._history.told(stations, self._core.state.is_live, self._clock())

    def _forget(self, worker: str) -> None:
        self._heartbeats.forget(worker)
        self._polling.forget(worker)

    def _note_beats(self, worker: str, before: Heartbeat, after: Heartbeat) -> None:
        self._metering.beat(worker, before, after)
        self._history.beat(worker, after.pieces, self._clock())

    def handle(self, worker: str) -> Worker:
        """Return a worker, to be called by clients."""
        return self._backend.handle(worker)

    def send(self, content: bytes) -> Any:
        """Store bytes where every worker can fetch them; return a reference for calls of workers."""
        return self._backend.send(content)

    @property
    def idle_s(self) -> float:
        """How long there has been no client and no worker."""
        return self._clock() - self._idle_since_s if self._core.state.is_idle else 0.0

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case events.Note(action, line, ids):
                    self._past.note(line, time.time())
                    log(action, line, ids)
                case Probe():
                    self._spawn(self._probe(effect))
                case events.Reserve():
                    self._spawn(self._orders.reserve(effect))
                case events.Start():
                    self._spawn(self._orders.run(effect))
                case events.Stop():
                    self._spawn(self._orders.stop(effect), "stop")
                case events.Abandon() | events.AbandonOthers():
                    self._spawn(self._orders.abandon(effect))
                case events.Resize():
                    self._spawn(self.resizing.resize(effect))
                case events.Remember() | events.KeepQuarantines():
                    self._spawn(self._keep(*pack_kept(effect, self._utc_offset_s())))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect: logged, and the supervisor continues.
            self._say_defect("a supervisor task failed", error)

    def _say_defect(self, what: str, error: BaseException) -> None:
        self._past.note(f"defect: {first_line(error)}", time.time())
        log(LogAction.DEFECT, f"{what}: {first_line(error)}", error=error)

    async def _probe(self, effect: Probe) -> None:
        try:
            await self._backend.when_to_probe(again=effect.again)
            node = await asyncio.wait_for(self._backend.probe(effect.node, again=effect.again), PROBE_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - any error of the node is the answer
            self.feed(events.ProbeFailed(effect.node, first_line(error)))
        else:
            await self._see_listed(node.node)
            self.feed(events.Probed(node))

    async def _see_listed(self, node: str) -> None:
        """Look at a node whose GPUs were listed for its probe: it is not taken to be without them until the next look.

        Its jobs are placed at once: they have waited, and none is to be refused for what was known before.
        """
        book = self._core.state.nodes.get(node)
        if book is not None and book.ray.unlisted:
            with suppress(Exception):  # the last view holds while the node table cannot be read
                self._decide(events.NodesSeen(await self._backend.look(), time.time()))

    async def _run_ticks(self) -> None:
        heartbeat_at_s = self._clock()
        while True:
            await self._sleep(TICK_S)
            self.feed(events.Ticked())
            self._metering.look(self._heartbeats.fps)
            if gone := self._backend.world_is_gone():
                self.feed(events.Ended(gone))
                return
            if not self._core.state.is_idle:
                self._idle_since_s = self._clock()
            if self._clock() >= heartbeat_at_s and not self.leading.over:
                heartbeat_at_s = self._clock() + HEARTBEAT_S
                self._history.look(sum(self._heartbeats.fps.values()), self._clock())
                if not self._keeping.locked():  # one that waits for Ray will do
                    self._spawn(self._keep_past())
                for book in list(self._core.state.stations.values()):
                    if book.state is StationState.READY:
                        self._spawn(self._heartbeats.read(book.worker))

    async def _run_looks(self) -> None:
        for look in itertools.count(1):
            await self._sleep(LOOK_S)
            if not await self.leading.leads():
                return
            with suppress(Exception):  # the last view holds while the node table cannot be read
                self.feed(events.NodesSeen(await self._backend.look(), time.time()))
            if look % SWEEP_LOOKS == 0:
                self._renewals.forget_expired()
                with suppress(Exception):  # the next sweep tries again
                    books = self._core.state.stations.values()
                    await self._backend.sweep(frozenset(book.worker for book in books if book.state in IN_USE))
