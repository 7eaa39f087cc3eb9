"""Checks whether a supervisor may still give orders, and carries out orders for workers and nodes."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ....errors import CodecfleetError
from ...logs.actions import LogAction
from ...logs.writing import log
from ...worker_names import WorkerId
from ..backends.backend import ClusterBackend, NoAnswer, in_time
from ..state import events
from ..state.events import Abandon, Effect, Reserve, Resize, Resized, Start, Stop, SupervisorEvent, TellNode
from ..state.settings import SupervisorSettings
from ..state.terms import Standing, Tenure, after_look

RETRY_S: Final = 1.0
LOOK_LIMIT_S: Final = 5.0
TELL_LIMIT_S: Final = 60.0
RESIZE_LIMIT_S: Final = 30.0  # how long an order for nodes may take; after that, the next order tries again


@dataclass(slots=True)
class Leading:
    """Checks whether a supervisor is still the newest, before each order and once a second."""

    backend: ClusterBackend
    tenure: Tenure
    limit_s: float  # a supervisor that cannot read the terms for this long counts as cut off
    clock: Callable[[], float]  # monotonic seconds, without the time in which this process was suspended
    sleep: Callable[[float], Awaitable[None]]
    _looked_s: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> str:
        """Why this supervisor may give no more orders; "" while it may give orders."""
        return self.tenure.standing.value if self.tenure.is_over else ""

    async def leads(self) -> bool:
        """Wait until it is known whether this supervisor is the newest; return the result."""
        await self.look()
        while self.tenure.standing is Standing.UNSURE:
            await self.sleep(RETRY_S)
            await self.look()
        return not self.over

    async def look(self, older_than_s: float = 0.0) -> None:
        """Read the newest term, unless it was read less than ``older_than_s`` ago."""
        if time.monotonic() - self._looked_s < older_than_s:
            return
        try:
            newest = await in_time(self.backend.newest_term(), LOOK_LIMIT_S)
        except NoAnswer:
            self._conclude(None)
        else:
            self._looked_s = time.monotonic()
            self._conclude(newest)

    def superseded(self) -> None:
        """Record that a worker obeys a newer supervisor."""
        self._conclude(self.tenure.term + 1)

    def _conclude(self, newest: int | None) -> None:
        was_over = self.tenure.is_over
        self.tenure = after_look(self.tenure, newest, self.clock(), self.limit_s)
        if self.tenure.is_over and not was_over:
            line = f"this supervisor, of term {self.tenure.term}, is {self.over}, so it ends"
            log(LogAction.SUPERVISOR_REPLACED, line)


@dataclass(frozen=True, slots=True)
class Orders:
    """Carries out orders for workers and nodes through the backend, and passes the results back to the core."""

    backend: ClusterBackend
    leading: Leading
    settings: SupervisorSettings
    feed: Callable[[SupervisorEvent], None]
    forget: Callable[[WorkerId], None]  # called with each worker that is gone

    async def give(self, order: Effect) -> None:
        """Carry out an order, unless another supervisor has replaced this one."""
        if not await self.leading.leads():
            return
        match order:
            case Reserve():
                await self._reserve(order)
            case Start():
                await self._run(order)
            case Stop(worker):
                await self._stop(worker)
            case Abandon(worker, clients):
                with suppress(Exception):  # a worker that is gone runs nothing
                    await self.backend.abandon(worker, clients)
            case TellNode():
                await self._tell_node(order)
            case _:
                raise AssertionError(order)

    async def _reserve(self, effect: Reserve) -> None:
        limit_s = self.settings.reserve_limit_s
        late = f"Ray had reserved nothing after {limit_s:g} s"
        try:
            cores = await in_time(self.backend.reserve(effect), limit_s, late)
        except NoAnswer as reason:
            self.feed(events.NotReserved(effect.worker, str(reason)))
        else:
            self.feed(events.Reserved(effect.worker, cores))

    async def _run(self, effect: Start) -> None:
        """Start a worker, then wait for its death."""
        limit_s = self.settings.start_limit_s
        try:
            facts = await in_time(self.backend.start(effect), limit_s, f"it did not answer within {limit_s:g} s")
        except NoAnswer as reason:
            self.feed(events.Died(effect.worker, str(reason)))
        else:
            self.feed(events.Started(effect.worker, facts))
            await self.await_death(effect.worker)

    async def await_death(self, worker: WorkerId) -> None:
        """Report a running worker's death when it happens."""
        self.feed(events.Died(worker, await self.backend.death_of(worker)))

    async def _stop(self, worker: WorkerId) -> None:
        with suppress(Exception):  # an unreachable worker ends itself, and the sweep releases the bundle
            await self.backend.stop(worker)
        self.forget(worker)
        self.feed(events.Stopped(worker))

    async def _tell_node(self, effect: TellNode) -> None:
        try:
            await in_time(self.backend.tell_node(effect), TELL_LIMIT_S)
        except NoAnswer as reason:
            self.feed(events.Untold(effect.node, str(reason)))


@dataclass(slots=True)
class Resizing:
    """Resizes the cluster while the supervisor leads.

    Of the orders that arrive while another is carried out, only the newest counts.
    """

    backend: ClusterBackend
    leading: Leading
    feed: Callable[[SupervisorEvent], None]
    _newest: Resize | None = None
    _is_busy: bool = False

    async def resize(self, order: Resize) -> None:
        """Carry out an order; if another is being carried out, that call carries out this order too."""
        self._newest = order
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._newest is not None and await self.leading.leads():
                newest, self._newest = self._newest, None
                self.feed(Resized(await self._trouble_with(newest)))
        finally:
            self._is_busy = False

    async def withdraw(self) -> None:
        """Withdraw the request for nodes, which Ray would otherwise keep for ever."""
        if trouble := await self._trouble_with(Resize(())):
            log(LogAction.NODES_REFUSED, f"the request for nodes could not be withdrawn, and stays in force: {trouble}")

    async def _trouble_with(self, order: Resize) -> str:
        late = f"Ray did not accept the order within {RESIZE_LIMIT_S:g} s"
        try:
            await in_time(self.backend.resize(order), RESIZE_LIMIT_S, late)
        except NoAnswer as reason:
            cause = reason.__cause__
            return str(cause if isinstance(cause, CodecfleetError) else reason)
        return ""
