"""A driver: it claims jobs of a queue, runs them, and hands back what it cannot finish.

A lease is renewed after each sixth of its length. A job's command is killed at a deadline, which is two thirds of the
lease's length after the last renewal began. So the command has been dead for a third of the lease when another driver
can claim the job. The deadline is on this machine's clock, the lease on the store's.
"""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ...actors.task_owner import TaskOwner
from ...errors import FleetUnavailable, QueueUnavailable, one_line
from .guard import STOP_S, clock
from .running import RunningJob, start_run
from .store import OUTPUT_MAX, JobStore
from .values import DriverOrder, JobClaim, QueuedCommand, QueuedJob, QueueState, RunEnd

LEASE_S: Final = 30.0
AT_ONCE: Final = 2
"""How many jobs a driver runs at the same time."""
LOOK_S: Final = 5.0
"""How often the driver checks whether it may claim jobs. All drivers of a cluster query its head for this."""
TICK_S: Final = 0.5
"""How often the driver looks for jobs, and stores what its jobs print."""
_RENEWALS: Final = 6
_GUARDED: Final = 2 / 3
_BACK: Final = RunEnd(None)


class Obstacle(NamedTuple):
    """Why a driver claims no job; without a reason, it may claim jobs."""

    reason: str = ""
    fails_jobs: bool = False  #: whether running jobs fail for this reason too: their cluster may have no head


StartRun: TypeAlias = Callable[[QueuedCommand, float], Awaitable[RunningJob | RunEnd]]


def driver_name() -> str:
    """Return a name for this process that no other driver has."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(slots=True)
class _Held:
    """A job that this driver has claimed."""

    job: QueuedJob
    ends_s: float  #: the guard's deadline
    run: RunningJob | None = None
    is_lost: bool = False
    is_stopped: bool = False
    unsaved: str = ""  #: output that is not stored yet
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)  #: held while output is stored, which keeps its order


class Driver:
    """Runs the jobs of a store, ``at_once`` at the same time, until ``stop`` or ``idle_s`` without a job.

    ``remove_record`` is called in a thread with the ``record`` of each job that is done. ``say`` is called with a line
    for each event. ``look`` is called in a thread, every ``look_s``. While it returns an obstacle with a reason, the
    driver claims no job. If the obstacle also ``fails_jobs``, the driver hands back a job that ends with
    FleetUnavailable.
    """

    def __init__(
        self,
        store: JobStore,
        remove_record: Callable[[str], object],
        *,
        name: str = "",
        at_once: int = AT_ONCE,
        lease_s: float = LEASE_S,
        idle_s: float | None = None,
        say: Callable[[str], object] = str,
        start: StartRun = start_run,
        look: Callable[[], Obstacle] = Obstacle,
        look_s: float = LOOK_S,
    ) -> None:
        self.name = name or driver_name()
        self._store = store
        self._remove_record = remove_record
        self._at_once = at_once
        self._lease_s = lease_s
        self._idle_s = idle_s
        self._say = say
        self._start = start
        self._look_for_obstacle = look
        self._look_s = look_s
        self._held: dict[JobClaim, _Held] = {}
        self._wake = asyncio.Event()
        self.is_stopping = False  #: whether the driver was asked to stop
        self._is_held = False
        self._trouble = ""
        self._renewed_s = -lease_s
        self._obstacle = Obstacle()

    def stop(self) -> None:
        """Stop all jobs, hand them back, and make ``run`` return."""
        self.is_stopping = True
        self._wake.set()

    def hold(self) -> None:
        """Claim no job until ``claim`` is called; running jobs continue."""
        self._is_held = True

    def claim(self) -> None:
        """Claim jobs again."""
        self._is_held = False
        self._wake.set()

    async def run(self) -> None:
        """Run jobs. If the store does not answer, the jobs continue until their guards' deadline."""
        await self._look()
        busy_s = time.monotonic()
        async with TaskOwner() as owner:
            owner.start(self._keep_looking(), "whether it may claim")
            while True:
                await self._step(owner)
                busy_s = busy_s if self._may_claim and not self._held else time.monotonic()
                if self._is_over(busy_s):
                    return
                self._wake.clear()
                await self._rest()

    @property
    def _may_claim(self) -> bool:
        return not (self._is_held or self._obstacle.reason)

    def _is_over(self, busy_s: float) -> bool:
        is_idle = self._idle_s is not None and time.monotonic() - busy_s >= self._idle_s
        return not self._held and (self.is_stopping or is_idle)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _step(self, owner: TaskOwner) -> None:
        try:
            if self._held and time.monotonic() - self._renewed_s >= self._lease_s / _RENEWALS:
                await self._renew(owner)
            for held in list(self._held.values()):
                await self._save_output(held)
            if not self.is_stopping and len(self._held) < self._at_once and self._may_claim:
                await self._claim(owner)
            self._trouble = ""
        except QueueUnavailable as error:
            self._note(error)
        if self.is_stopping:
            for held in self._held.values():
                self._stop(held, owner)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await self._look()

    async def _look(self) -> Obstacle:
        obstacle = await asyncio.to_thread(self._look_for_obstacle)
        if bool(obstacle.reason) != bool(self._obstacle.reason):  # a change of the figures in a reason is not reported
            self._say(f"claims no job: {obstacle.reason}" if obstacle.reason else "claims jobs again")
        self._obstacle = obstacle
        return obstacle

    async def _claim(self, owner: TaskOwner) -> None:
        began_s = clock()
        most = self._at_once - len(self._held)
        for job in await asyncio.to_thread(self._store.claim, self.name, most, self._lease_s):
            held = self._held[job.claim] = _Held(job, began_s + _GUARDED * self._lease_s)
            owner.start(self._drive(held), f"job {job.job_id}")

    async def _renew(self, owner: TaskOwner) -> None:
        began_s, now_s = clock(), time.monotonic()
        orders = await asyncio.to_thread(self._store.renew, list(self._held), self._lease_s)
        self._renewed_s = now_s
        for claim, order in orders.items():
            if (held := self._held.get(claim)) is None:
                continue
            if order is DriverOrder.LOST:
                held.is_lost = True
                if held.run is not None:
                    held.run.kill()
            else:
                held.ends_s = began_s + _GUARDED * self._lease_s
                if held.run is not None:
                    held.run.extend(held.ends_s)
                if order is DriverOrder.CANCEL:
                    self._stop(held, owner)

    def _stop(self, held: _Held, owner: TaskOwner) -> None:
        if held.run is not None and not held.is_stopped:
            held.is_stopped = True
            held.run.stop()
            owner.start(self._kill_later(held.run), f"the end of job {held.job.job_id}")

    async def _kill_later(self, run: RunningJob) -> None:
        await asyncio.sleep(STOP_S)
        run.kill()

    async def _drive(self, held: _Held) -> None:
        """Run a claimed job, and report its end until the store takes it or the claim is lost."""
        job = held.job
        self._say(f"job {job.job_id} begins, attempt {job.attempt}: {' '.join(job.command.arguments)}")
        held.unsaved = f"codecfleet: attempt {job.attempt} on {self.name}\n"
        try:
            started = _BACK if self.is_stopping else await self._start(job.command, held.ends_s)
            if isinstance(started, RunEnd):
                end = started
                if end.message:
                    held.unsaved += f"codecfleet: error: {one_line(f'{end.message}. {end.next_step}')}\n"
            else:
                held.run = started
                started.extend(held.ends_s)  # the lease may have been renewed meanwhile
                if held.is_lost:
                    started.kill()
                end = await started.end()
                if await self._is_handed_back(end):
                    end = RunEnd(None, used=end.used)
            await self._report(held, end)
        finally:
            del self._held[job.claim]
            self._wake.set()

    async def _is_handed_back(self, end: RunEnd) -> bool:
        """Return whether the driver or the cluster caused a job's end; the driver then hands the job back."""
        if self.is_stopping:
            return end.exit_code != 0
        return end.error == FleetUnavailable.__name__ and (await self._look()).fails_jobs

    async def _report(self, held: _Held, end: RunEnd) -> None:
        job_id, claim = held.job.job_id, held.job.claim
        while not held.is_lost and clock() < held.ends_s + self._lease_s:
            try:
                await self._save_output(held)
                ended = await asyncio.to_thread(self._store.end, claim, end)
            except QueueUnavailable as error:
                self._note(error)
                await asyncio.sleep(TICK_S)
                continue
            if ended is None:
                break
            why = f": {ended.message}" if ended.message and ended.state is not QueueState.CANCELLED else ""
            self._say(f"job {job_id}: {ended.state.value}{why}")
            if end.record and ended.state is QueueState.DONE:
                await self._forget(job_id, end.record)
            return
        self._say(f"job {job_id} was lost: its lease ended, or it is no longer in the queue; its work is kept")

    async def _forget(self, job_id: str, record: str) -> None:
        try:
            await asyncio.to_thread(self._remove_record, record)
        except Exception as error:  # noqa: BLE001 - the job is done, and the driver's other jobs go on
            self._say(f"job {job_id}: its record {record} stays: {one_line(str(error))}")

    async def _save_output(self, held: _Held) -> None:
        async with held.saving:
            if held.run is not None:
                held.unsaved = (held.unsaved + held.run.take_output())[-OUTPUT_MAX:]
            if held.unsaved:
                await asyncio.to_thread(self._store.append, held.job.claim, held.unsaved)
                held.unsaved = ""

    def _note(self, error: QueueUnavailable) -> None:
        if self._trouble != error.message:
            self._trouble = error.message
            self._say(str(error))
