"""Carries out what the core decides, and feeds back the results: the async shell around ``core.Core``.

Everything runs on one event loop, in the cluster's supervisor actor or in a process with an embedded Ray.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...awake_clock import AwakeClock
from ...fleet_variables import events_folder
from ...logs.actions import LogAction
from ...logs.writing import log
from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_words import first_line
from ...worker.heartbeat import Heartbeat
from ...worker.newest_term import OldTerm
from ...worker.worker import Worker
from ..backends.backend import ClusterBackend
from ..core.core import Core
from ..core.placing import next_pass_s
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
from .recording import Recording, decide
from .resizing import Resizing
from .tasks import Tasks
from .worker_orders import WorkerOrders

TICK_S = 0.25
GAP_MAX_S = 5.0
"""A longer time between two ticks was a suspended process's; clients and workers were not silent for it."""
LOOK_S = 1.0
"""How often the node table is read; that costs 0.4 ms."""
HEARTBEAT_S = 2.0
PROBE_LIMIT_S = 150.0
SWEEP_LOOKS = 60
SHUTDOWN_GRACE_S = 5.0
"""How long stopping the workers may take on close."""
PROBE_WAIT_S = 10.0
"""How long a preview waits for the first probe of GPUs; less than clients wait for an answer."""
PROBE_LOOK_S = 0.1
FRESH_S = 3.0
"""Slots are granted if this is known to have been the newest supervisor so long ago."""
STOPPING = "stop"
"""The name of the tasks that stop workers."""
_STILL_PROBING = PlacementPreview(unknown="the fleet's GPUs are still being probed", is_probing=True)


class SupervisorRunner:
    """A running supervisor; ``clock`` returns monotonic seconds in which it ran, and is the core's clock too.

    ``take_samples`` is passed what monitoring is to know, where that is to know anything. ``on_failure`` is called once
    a task of its own has failed: then it has ended, and ``failure`` says why.
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
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend = backend
        self._core = core
        self._settings = settings
        self._clock = clock = clock or AwakeClock(GAP_MAX_S)
        self._sleep = sleep
        self._on_failure = on_failure
        self.failure = ""
        self._tasks = Tasks(self._fail)
        self._ticking: asyncio.TimerHandle | None = None
        self._pass_s = 0.0
        self._calls: dict[int, asyncio.Future[Grants]] = {}
        folder = events_folder(os.environ)
        self._recording = Recording(core, Path(folder)) if folder else None
        self._keeping = asyncio.Lock()
        self.leading = Leading(backend, term_of(core.state.epoch), settings.fence_s, clock=clock, sleep=sleep)
        self.resizing = Resizing(backend, self.leading, self.feed)
        self._orders = WorkerOrders(backend, self.leading, settings, feed=self.feed, forget=self._forget)
        self._polling = Polling(
            backend, core.state, settings, feed=self.feed, spawn=self._tasks.spawn, clock=clock, sleep=sleep
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
        await self._tasks.open()
        await self._recall_past()
        seen = await self._backend.look()
        self.feed(events.NodesSeen(seen, time.time()))
        if lost := lost_nodes(await self._backend.kept(NODES_KEY), {each.node for each in seen}):
            self._carry_out([events.Note(LogAction.NODE_GONE, lost)])
        self.feed(events.Found(await self._backend.find()))
        await self._recall()
        for book in list(self._core.state.stations.values()):
            if book.state is StationState.READY:
                self._tasks.spawn("a worker's death", self._orders.await_death(book.worker))
        self._tasks.spawn("ticks", self._run_ticks())
        self._tasks.spawn("looks at nodes", self._run_looks())
        self._tasks.spawn("polls of GPUs", self._polling.run())

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
        if self._ticking is not None:
            self._ticking.cancel()
        await self._tasks.close(awaited=STOPPING, grace_s=SHUTDOWN_GRACE_S)

    def feed(self, event: SupervisorEvent) -> None:
        """Pass an event to the core, and carry out what it decides; a tick follows where everything is to be placed."""
        self._metering.hear(event)
        now_s, state = self._clock(), self._core.state
        decided = decide(self._core, event, now_s)
        if state.placed_s == now_s:
            self._pass_s = self._clock() - now_s
            self._metering.placed(self._pass_s)
        if decided.defect:
            self._say_defect("a decision failed", decided.defect)
        if self._recording is not None:
            with suppress(OSError):  # a full disk must not end the supervisor
                self._recording.note(decided)
        self._carry_out(decided.effects)
        if state.is_dirty and self._ticking is None:
            rest_s = max(0.0, next_pass_s(state, self._pass_s) - self._clock())
            self._ticking = asyncio.get_running_loop().call_later(rest_s, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self.feed(events.Ticked(self._pass_s))

    async def renew(self, report: ClientReport, wait_s: float = 0.0) -> Grants:
        """Take a report; return the client's grants when they change, a newer report comes, or ``wait_s`` is over.

        Raises:
            OldTerm: another supervisor grants slots now.
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
        """Return the newest events and what was decided; b"" where none are kept."""
        return b"" if self._recording is None else self._recording.packed()

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
        self.feed(events.Departed(client))

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
                    self._tasks.spawn("keeping", self._keep(*pack_kept(effect, self._utc_offset_s())))
                case _:
                    self._order(effect)

    def _order(self, effect: Effect) -> None:
        match effect:
            case events.Reserve(worker):
                self._tasks.spawn(f"reservation of {worker}", self._orders.reserve(effect))
            case events.Start(worker):
                self._tasks.spawn(f"start of {worker}", self._orders.run(effect))
            case events.Stop():
                self._tasks.spawn(STOPPING, self._orders.stop(effect))
            case events.Abandon() | events.AbandonOthers():
                self._tasks.spawn("abandoned work", self._orders.abandon(effect))

    def _fail(self, what: str, error: Exception) -> None:
        """A task of ours has failed, and everything ends with it: another supervisor begins."""
        self.failure = f"the supervisor's task failed: {what}"
        log(LogAction.DEFECT, self.failure, error=error)
        self.feed(events.Ended(self.failure))
        self._on_failure()

    def _say_defect(self, what: str, error: str) -> None:
        self._past.note(f"defect: {error}", time.time())
        log(LogAction.DEFECT, f"{what}: {error}")

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
                self.feed(events.NodesSeen(await self._backend.look(), time.time()))

    async def _run_ticks(self) -> None:
        heartbeat_at_s = self._clock()
        while True:
            await self._sleep(TICK_S)
            self.feed(events.Ticked(self._pass_s))
            self._metering.look(self._heartbeats.fps)
            if self._core.state.end:
                continue  # those who ask again are still answered
            if gone := self._backend.world_is_gone():
                self.feed(events.Ended(gone))
                continue
            if not self._core.state.is_idle:
                self._idle_since_s = self._clock()
            if self._clock() >= heartbeat_at_s and not self.leading.over:
                heartbeat_at_s = self._clock() + HEARTBEAT_S
                self._history.look(sum(self._heartbeats.fps.values()), self._clock())
                if not self._keeping.locked():  # one that waits for Ray will do
                    self._tasks.spawn("keeping of the past", self._keep_past())
                for book in list(self._core.state.stations.values()):
                    if book.state is StationState.READY:
                        self._tasks.spawn(f"heartbeat of {book.worker}", self._heartbeats.read(book.worker))

    async def _run_looks(self) -> None:
        for look in itertools.count(1):
            await self._sleep(LOOK_S)
            if not await self.leading.leads():
                return
            with suppress(Exception):  # the last view holds while the node table cannot be read
                self.feed(events.NodesSeen(await self._backend.look(), time.time()))
            if look % SWEEP_LOOKS == 0:
                with suppress(Exception):  # the next sweep tries again
                    books = self._core.state.stations.values()
                    await self._backend.sweep(frozenset(book.worker for book in books if book.state in IN_USE))
