"""A pool in another process, the host, which is the Ray driver.

Ray ends a driver's process when its node or control service dies. Running work is lost, as when a worker dies; then a
new host starts, and the jobs continue.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...actors.background import Background, SharedCall
from ...actors.device.work import Work
from ...actors.process.child import Child, ChildDied
from ...actors.process.messages import Request, beside
from ...actors.process.process import StartedProcess
from ...actors.worker.packed_work import BlobCache, base_fields
from ...errors import Cancelled, CodecfleetError, FleetUnavailable, UsageError, WorkerLost
from ..device_fault import DeviceFault
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from .life import Broken, Closed, Event, HostEnded, HostPhase, HostStarted, Life, Refused, Wanted, decide
from .messages import (
    BEAT_S,
    CLOSING_S,
    AskPreview,
    Beat,
    Close,
    GiveUp,
    HostedWork,
    KeepBlob,
    SetDemand,
    StartPool,
    TellFault,
)
from .pool import Asked, ClientName, JobState, Pool, PoolState
from .run import ResultOrigin, WorkRun

if TYPE_CHECKING:
    from .serving import HostSession

ResultT = TypeVar("ResultT")

SILENT_BEATS: Final = round(30 / BEAT_S)
"""A host is killed after this many intervals without a beat; importing Ray alone takes seconds on a busy machine.
Intervals are counted rather than time, because no beats arrive while this program is stopped or its machine sleeps."""
_AGAIN: Final = "Submit the same work again; the fleet starts a new process."
_DEFECT: Final = "Please report this defect, with the input and the options."


class _Host:
    """A host process; ``hear`` is called with each beat from the host."""

    def __init__(self, process: StartedProcess, hear: Callable[[Beat], None]) -> None:
        self.child: Child[HostSession] = Child(process, self)
        self.blobs = BlobCache(self._send_blob)
        self.over = asyncio.Event()  #: set when the pool has handled the end of the host
        self._hear = hear
        self._blob_numbers = itertools.count()
        self._silent_beats = 0

    async def heard(self, beat: Beat) -> None:
        """Note that the host is alive, and pass its state on."""
        self._silent_beats = 0
        self._hear(beat)

    async def death(self) -> str:
        """Wait until the host ends, and return how it ended. A host that is silent for too long is killed."""
        while True:
            try:
                async with asyncio.timeout(BEAT_S):
                    return await self.child.death()
            except TimeoutError:
                self._silent_beats += 1
            if self._silent_beats == SILENT_BEATS:
                self.child.kill(f"it was silent for {SILENT_BEATS * BEAT_S:g} s")

    async def close(self, *, at_once: bool) -> None:
        """End the host, either ``at_once`` or after it has closed its pool. Calls in progress are lost."""
        if not at_once:
            self.child.tell(Close())
            with suppress(TimeoutError):  # the host may wait for a cluster that is out of reach
                async with asyncio.timeout(CLOSING_S):
                    await self.child.death()
        await self.child.end()

    def _send_blob(self, content: bytes) -> int:
        self.child.tell(KeepBlob(beside(content)))
        return next(self._blob_numbers)


class RemotePool(Pool):
    """Starts a host process that connects to Ray; if the host ends, starts another one.

    Args:
        spawn: starts a host whose connection has the given name. It is called in the event loop's thread; the host ends
            with that thread.
        slots: the most slots to use; None for all slots of the host.
        rest: sleeps for a number of seconds.
        is_here: whether all workers run on this machine.
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
        self._host: _Host | None = None
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
        """Wait until a host is connected and its workers are ready. Raises UsageError: the address is invalid."""
        self._refuse_if_closed()
        self._happen(Wanted())
        await self._ready()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work`` on one of the host's workers; large NumPy arrays in the result are read-only."""
        self._refuse_if_closed()
        number = next(self._numbers)
        run: WorkRun[ResultT] = WorkRun(lambda why: self._tell(GiveUp(number, why)))
        self._runs[number] = run
        carrying = self._tasks.spawn(f"the run of {work.label}", self._carry(number, run, work))
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
        while True:
            host = await self._ready()
            try:
                return await host.child.call(AskPreview(demand))
            except ChildDied:  # ask the next host
                await host.over.wait()

    async def aclose(self) -> None:
        """End the host and its child processes; a host that is still starting is killed. Idempotent."""
        if self._closing is None:
            self._closing = SharedCall(self._close(), "the pool's end")
        await self._closing.wait()

    async def _close(self) -> None:
        was_ready = self._life.phase is HostPhase.READY
        self._happen(Closed())
        self._fail_all(Cancelled("the pool was closed"))
        if self._host is not None:
            await self._host.close(at_once=not was_ready)
        await self._tasks.end()

    async def _carry(self, number: int, run: WorkRun[ResultT], work: Work[ResultT]) -> None:
        try:
            host = await self._ready()
            packed, blobs = host.blobs.pack(work)
            try:
                made = await host.child.call(HostedWork(number, base_fields(work), packed, blobs))
            except ChildDied as died:
                await host.over.wait()
                lost = WorkerLost(f"the host of {work.label}'s worker is gone: {died}", _AGAIN)
                raise self._life.error or lost from None
        except CodecfleetError as error:
            run.fail(error)
        else:
            run.end(made.result, ResultOrigin(made.worker, made.file, self._tell_fault))

    def _tell_fault(self, fault: DeviceFault) -> None:
        self._tell(TellFault(fault))

    def _happen(self, event: Event) -> None:
        self._life, effect = decide(self._life, event, time.monotonic())
        self._publish()
        if effect is not None:
            self._tasks.spawn("the start of a host", self._begin(self._life, effect.wait_s))

    async def _begin(self, life: Life, wait_s: float | None) -> None:
        if wait_s is not None:
            await self._rest(wait_s)
        if self._life is not life:
            return  # meanwhile the pool was closed, or failed
        name, self._name = self._name, self._name.next
        try:
            process = self._spawn(name)
        except OSError as error:
            message = f"the process that hosts Ray did not start: {error}"
            self._happen(Refused(FleetUnavailable(message, "Check the limits on memory and processes.")))
            return
        self._notes += (process.note,) if process.note and process.note not in self._notes else ()
        self._said = replace(self._said, warm_fleet=process.warm_fleet)
        host = self._host = _Host(process, self._heard)
        self._tasks.spawn("the host", self._watch(host))
        try:
            await host.child.call(StartPool())
        except ChildDied:
            return  # ``_watch`` handles the end of the host
        except CodecfleetError as error:
            self._host = None
            await host.close(at_once=False)
            self._happen(Refused(error))
            return
        for job, demand in self._demands.items():
            host.child.tell(SetDemand(job, demand))
        self._happen(HostStarted())

    async def _watch(self, host: _Host) -> None:
        """Wait until a host ends, and pass its end to ``decide``, which may start another host."""
        reason = await host.death()
        if host is self._host:
            if self._life.phase is HostPhase.READY:
                self._notes += (f"the process connected to Ray was replaced during the run: {reason}",)
            self._host = None
            self._happen(HostEnded(reason))
        host.over.set()

    def _break(self, task: str, error: BaseException) -> None:
        broken = FleetUnavailable(f"the pool failed at {task}: {type(error).__name__}: {error}", _DEFECT)
        if self._host is not None:
            self._host.child.kill()
        self._host = None
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
        life, before = self._life, self._state
        state = replace(self._said, slots=self._limited(self._said.slots), notes=self._said.notes + self._notes)
        if life.phase is not HostPhase.READY:
            waits_for = f"Ray is being restarted: {life.lost}" if life.lost else ""
            address = None if life.phase is HostPhase.STARTING else ""
            state = replace(
                state, jobs={}, others=JobState(waits_for=waits_for, never=life.error), files_address=address
            )
        self._state = replace(state, is_here=before.is_here, changed=asyncio.Event())
        before.changed.set()

    async def _ready(self) -> _Host:
        while self._life.phase is not HostPhase.READY or self._host is None:
            if self._life.phase is HostPhase.CLOSED:
                raise Cancelled("the pool was closed")
            if self._life.phase is HostPhase.FAILED and self._life.error is not None:
                raise self._life.error
            if self._life.phase is HostPhase.ABSENT:
                raise FleetUnavailable("the pool has not been started", "Start it first.")
            await self._state.changed.wait()
        return self._host

    def _tell(self, request: "Request[HostSession, None]") -> None:
        if self._life.phase is HostPhase.READY and self._host is not None:
            self._host.child.tell(request)

    def _limited(self, slots: int) -> int:
        return slots if self._slots_max is None else min(slots, self._slots_max)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise UsageError("the pool is closed")
