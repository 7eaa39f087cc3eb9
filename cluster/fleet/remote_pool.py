"""The pool in another process: a host holds Ray, not the user's process.

The process that holds Ray's driver dies with its Ray node or control service. So it is one of our own, and when it is
gone a new one is started: work that ran is lost as with its worker, and the jobs go on.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from ...actors.device.work import Work
from ...errors import Cancelled, CodecfleetError, FleetUnavailable, UsageError, WorkerLost
from ..background import Background, SharedCall
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from ..process.child import ChildDied
from ..process.messages import Request
from ..process.process import StartedProcess
from .client_name import ClientName
from .life import (
    Broken,
    Closed,
    Event,
    HostEnded,
    HostPhase,
    HostStarted,
    Life,
    Refused,
    Rest,
    Rested,
    Spawn,
    Wanted,
    decide,
)
from .link import HostLink
from .messages import AskPreview, Beat, FilesAddress, GiveUp, HostSide, SetDemand, StartPool, TellDoubt
from .pool import Asked, JobState, Pool, PoolState
from .run import Doubt, ResultOrigin, WorkRun

ResultT = TypeVar("ResultT")
ReplyT = TypeVar("ReplyT")

_AGAIN = "A new one is started; the same work may be submitted again."
_DEFECT = "Please report it, with the input and the options."


class RemotePool(Pool):
    """Has a host process that connects to Ray, and starts another when that ends.

    Args:
        spawn: starts a host's process, whose connection has that name; called in the event loop's thread, with which
            the process ends.
        slots: pieces of work at a time, where the host may have more; None means as many as it has.
        rest: waits that many seconds.
        is_here: all its workers run on this machine.
    """

    def __init__(
        self,
        spawn: Callable[[ClientName], StartedProcess],
        *,
        slots: int | None = None,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        is_here: bool = False,
    ) -> None:
        self._spawn = spawn
        self._slots_max = slots
        self._rest = rest
        self._name = ClientName()
        self._life = Life()
        self._link: HostLink | None = None
        self._said = PoolState()
        self._notes: tuple[str, ...] = ()
        self._state = PoolState(is_here=is_here)
        self._demands: dict[str, Asked] = {}
        self._numbers = itertools.count()
        self._runs: dict[int, WorkRun[Any]] = {}
        self._tasks = Background(self._break)
        self._closing: SharedCall | None = None

    @property
    def state(self) -> PoolState:
        return self._state

    async def start(self) -> None:
        """Wait until a host is connected and its workers are ready.

        Raises:
            FleetUnavailable: there is nothing to run on.
            UsageError: the address makes no sense, or the pool is closed.
        """
        self._refuse_if_closed()
        self._happen(Wanted())
        await self._ready()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Have ``work`` run on a worker of the host's; large NumPy arrays in the result are read-only."""
        self._refuse_if_closed()
        number = next(self._numbers)
        run: WorkRun[ResultT] = WorkRun(lambda why: self._tell(GiveUp(number, why)))
        self._runs[number] = run
        carrying = self._tasks.begin(self._carry(number, run, work), f"the run of {work.label}")
        run.result.add_done_callback(lambda _: carrying.cancel())
        run.result.add_done_callback(lambda _: self._runs.pop(number))
        return run

    def set_demand(self, job: str, demand: Asked | None) -> None:
        if isinstance(demand, Demand) and self._slots_max is not None:
            demand = replace(demand, workers_max=self._limited(demand.workers_max or self._slots_max))
        if self._demands.get(job) == demand:
            return
        if demand is None:
            del self._demands[job]
        else:
            self._demands[job] = demand
        self._tell(SetDemand(job, demand))

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self._ask(AskPreview(demand))

    async def files_address(self) -> str:
        return await self._ask(FilesAddress())

    async def aclose(self) -> None:
        """End the host with everything that it started; one that is still starting is killed. Idempotent."""
        if self._closing is None:
            self._closing = SharedCall(self._close(), "the pool's end")
        await self._closing.wait()

    async def _close(self) -> None:
        was_ready = self._life.phase is HostPhase.READY
        self._happen(Closed())
        self._fail_all(Cancelled("the pool was closed"))
        if self._link is not None:
            await self._link.close(at_once=not was_ready)
        await self._tasks.end()

    async def _carry(self, number: int, run: WorkRun[ResultT], work: Work[ResultT]) -> None:
        """Have the host run work, and give its run the end."""
        try:
            link = await self._ready()
            try:
                made = await link.run(number, work)
            except ChildDied as died:
                await link.over.wait()
                lost = WorkerLost(f"the host of {work.label}'s worker is gone: {died}", _AGAIN)
                raise self._life.error or lost from None
        except CodecfleetError as error:
            run.fail(error)
        else:
            run.end(made.result, ResultOrigin(made.worker, made.file, self._doubt))

    def _doubt(self, doubt: Doubt) -> None:
        self._tell(TellDoubt(doubt))

    def _happen(self, event: Event) -> None:
        self._life, effects = decide(self._life, event, time.monotonic())
        self._publish()
        for effect in effects:
            if isinstance(effect, Spawn):
                self._tasks.begin(self._begin(), "the start of a host")
            else:
                self._tasks.begin(self._pause(effect), "the rest before a host")

    async def _pause(self, rest: Rest) -> None:
        await self._rest(rest.seconds)
        self._happen(Rested())

    async def _begin(self) -> None:
        """Start a host, and its pool."""
        name, self._name = self._name, self._name.next
        try:
            process = self._spawn(name)
        except OSError as error:
            message = f"the process that is to hold Ray did not start: {error}"
            self._happen(Refused(FleetUnavailable(message, "Check the limits on memory and processes.")))
            return
        self._notes += (process.note,) if process.note and process.note not in self._notes else ()
        self._said = replace(self._said, warm_fleet=process.warm_fleet)
        link = self._link = HostLink(process, self._heard)
        self._tasks.begin(self._watch(link), "the host")
        try:
            await link.call(StartPool())
        except ChildDied:
            return  # ``_watch`` takes it from there
        except CodecfleetError as error:
            self._link = None
            await link.close(at_once=False)
            self._happen(Refused(error))
            return
        for job, demand in self._demands.items():
            link.tell(SetDemand(job, demand))
        self._happen(HostStarted())

    async def _watch(self, link: HostLink) -> None:
        """Wait for the end of a host; another one follows, unless the pool refused this one."""
        reason = await link.death()
        if link is self._link:
            if self._life.phase is HostPhase.READY:
                self._notes += (f"the process that holds Ray was replaced during the run: {reason}",)
            self._link = None
            self._happen(HostEnded(reason))
        link.over.set()

    def _break(self, task: str, error: BaseException) -> None:
        """End with the task that failed: nothing runs any more, and everybody hears why."""
        broken = FleetUnavailable(f"the pool failed at {task}: {type(error).__name__}: {error}", _DEFECT)
        if self._link is not None:
            self._link.kill()
        self._link = None
        self._happen(Broken(broken))
        self._fail_all(broken)

    def _fail_all(self, error: CodecfleetError) -> None:
        for run in list(self._runs.values()):
            run.fail(error)

    def _heard(self, beat: Beat) -> None:
        for number, progress in beat.progress.items():
            if number in self._runs:
                self._runs[number].tell(progress)
        if beat.state is not None:
            self._said = replace(beat.state, warm_fleet=self._said.warm_fleet)
            self._publish()

    def _publish(self) -> None:
        """Replace the state: what the host says; until another is ready, mostly what the last one said."""
        life, said, before = self._life, self._said, self._state
        jobs, others = said.jobs, said.others
        if life.phase is not HostPhase.READY:
            waits_for = f"Ray is started again: {life.lost}" if life.lost else ""
            jobs, others = {}, JobState(waits_for=waits_for, never=life.error)
        self._state = PoolState(
            self._limited(said.slots), said.notes + self._notes, jobs, others, before.is_here, said.warm_fleet
        )
        before.changed.set()

    async def _ready(self) -> HostLink:
        """Return the host once it is ready, which it may be already."""
        while self._life.phase is not HostPhase.READY or self._link is None:
            if self._life.phase is HostPhase.CLOSED:
                raise Cancelled("the pool was closed")
            if self._life.phase is HostPhase.FAILED and self._life.error is not None:
                raise self._life.error
            if self._life.phase is HostPhase.ABSENT:
                raise FleetUnavailable("the pool is not started", "Start it first.")
            await self._state.changed.wait()
        return self._link

    async def _ask(self, request: Request[HostSide, ReplyT]) -> ReplyT:
        """Ask the host; a new one is asked again."""
        while True:
            link = await self._ready()
            try:
                return await link.call(request)
            except ChildDied:
                await link.over.wait()

    def _tell(self, request: Request[HostSide, None]) -> None:
        if self._life.phase is HostPhase.READY and self._link is not None:
            self._link.tell(request)

    def _limited(self, slots: int) -> int:
        return slots if self._slots_max is None else min(slots, self._slots_max)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise UsageError("the pool is closed")
