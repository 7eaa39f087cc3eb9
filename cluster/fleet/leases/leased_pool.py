"""The pool with leases: work runs on workers that a supervisor has leased to this client.

The pool repeatedly reports what its jobs want and hold, and receives what they may use. Work goes straight to the
workers: while a supervisor is down, running work and leased slots are unaffected.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from ....actors.device.work import Work
from ....errors import CodecfleetError, FleetUnavailable, UsageError
from ...autoscale.behind import LaterDemand, WorkBehind
from ...background import Background, SharedCall
from ...placement.model.demand import PLAIN_FRAMES, Demand, plain_demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_environment import submission_id
from ...ray.ray_words import first_line
from ...supervisor.runner.client import SupervisorClient
from ...supervisor.state.messages import ClientReport, JobReport
from ...version import PYAV
from ..client_name import ClientName
from ..pool import Asked, JobState, Pool, PoolState
from ..run import WorkRun
from .ground import Ground
from .lease_renewal import ANSWER_S, LeaseRenewal
from .leased_work import CANCEL_LIMIT_S, SHUTDOWN_GRACE_S, LeasedWork
from .refusals import broken, impossible, unrecoverable

ResultT = TypeVar("ResultT")

PROBE_QUESTIONS = 6
"""How often a job asks for its preview while GPUs are probed; the supervisor holds each call for 10 s."""
CORES_OF_A_SLOT = 2
"""Where a user limits the slots."""
WARM_UP = "warm-up"
"""The job for which an eager pool gets its workers before any other."""
_DEFECT = "Please report it, with the input and the options."


@dataclass(frozen=True, slots=True)
class _Open:
    """What a pool has once it has reached its supervisor."""

    ground: Ground
    work: LeasedWork
    renewal: LeaseRenewal


class LeasedPool(Pool):
    """Runs work on workers that a supervisor leases.

    Args:
        reach: connects to the supervisor; called by ``start``, and again where that failed.
        workers_max: pieces of work of one job at a time; None means as many as granted.
        cancel_limit_s: how long cancelled work may take to end before its worker counts as hung, in whole seconds in
            which this process is awake.
        name: what this client is called. Connections of its fleet that are gone give their slots back at once.
    """

    def __init__(
        self,
        reach: Callable[[], Awaitable[Ground]],
        workers_max: int | None = None,
        *,
        cancel_limit_s: int = CANCEL_LIMIT_S,
        name: ClientName | None = None,
    ) -> None:
        if workers_max is not None and workers_max < 1:
            raise UsageError(f"a pool needs at least one slot: {workers_max}")
        self._reach = reach
        self._workers_max = workers_max
        self._cancel_limit_s = cancel_limit_s
        self._name = name or ClientName()
        self._client = str(self._name)
        self._sequence = itertools.count(1)
        self._demands: dict[str, Demand] = {}
        self._behind = WorkBehind()
        self._state = PoolState()
        self._is_stale = False
        self._tasks = Background(self._break)
        self._broken: CodecfleetError | None = None
        self._open: _Open | None = None
        self._opening: SharedCall | None = None
        self._closing: SharedCall | None = None

    @property
    def state(self) -> PoolState:
        """What the pool is now; computed when it is asked for after a change."""
        if self._is_stale and self._open is not None:
            self._is_stale = False
            self._state = self._computed(self._open)
        return self._state

    @property
    def lost(self) -> str:
        """Why nothing will be reached again through this connection to Ray; "" while it may be. Thread-safe.

        A pool that is closing has lost nothing.
        """
        opened = self._open
        return (
            ""
            if opened is None or self._closing is not None
            else opened.ground.supervisor.world_is_gone() or opened.renewal.lost
        )

    @property
    def spent(self) -> str:
        """Why no work will ever run here again; "" while it may."""
        return "" if self._open is None else self._open.renewal.grants.unrecoverable

    @property
    def supervisor(self) -> SupervisorClient:
        """The supervisor that it has reached.

        Raises:
            FleetUnavailable: none.
        """
        return self._opened().ground.supervisor

    async def start(self) -> None:
        """Reach the supervisor; an eager pool also waits for its first worker.

        Raises:
            FleetUnavailable: there is nothing to run on, or the pool is closed.
        """
        if self._closing is not None:
            raise FleetUnavailable("the pool is closed", "Open a new fleet.")
        if self._opening is None:
            self._opening = SharedCall(self._start(), "the pool's start")
        await self._opening.wait()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Have ``work`` run; large NumPy arrays in the result are read-only views of Ray's object store, not copies."""
        if self._closing is not None:
            raise UsageError("the pool is closed")
        return self._opened().work.submit(work)

    def set_demand(self, job: str, demand: Asked | None) -> None:
        if isinstance(demand, LaterDemand):
            self._behind.set(job, demand)
        elif demand is not None:
            limits = [limit for limit in (demand.workers_max, self._workers_max) if limit is not None]
            demand = replace(demand, workers_max=min(limits, default=None))
            if self._demands.get(job) == demand:
                return
            self._demands[job] = demand
        else:
            self._demands.pop(job, None)
            self._behind.clear(job)
            if self._open is not None:
                self._open.work.forget(job)
        self._changed()

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where such a job would be placed, after waiting for GPUs that are being probed."""
        ground = self._opened().ground
        demand = demand if ground.late is None else ground.late.previewed(demand)
        for _ in range(PROBE_QUESTIONS):
            preview = await _preview(ground.supervisor, demand)
            if not preview.is_probing:
                break
        return preview

    async def files_address(self) -> str:
        return await self._opened().ground.supervisor.serve_files(self._client)

    async def aclose(self) -> None:
        """Cancel running work, give it half a second to end, and release the workers."""
        if self._closing is None:
            self._closing = SharedCall(self._close(), "the pool's end")
        await self._closing.wait()

    async def _start(self) -> None:
        try:
            ground = await self._reach()
            try:
                await self._enter(ground)
            except BaseException:
                self._open = None
                await self._tasks.end()
                await _leave(ground)
                raise
        except BaseException:
            self._opening = None  # the next start tries again
            raise

    async def _enter(self, ground: Ground) -> None:
        try:
            await ground.supervisor.open()
            for gone in self._name.earlier:
                await ground.supervisor.depart(gone)
        except CodecfleetError:
            raise
        except Exception as error:  # Ray raises errors of many kinds
            message = f"the supervisor cannot be reached: {first_line(error)}"
            raise FleetUnavailable(message, ground.supervisor.what_next) from error
        self._open = opened = self._opened_on(ground)
        self._tasks.begin(opened.renewal.run(), "lease renewal")
        self._tasks.begin(opened.work.follow(), "progress of workers")
        await self._first_grants(opened)

    def _opened_on(self, ground: Ground) -> _Open:
        renewal = LeaseRenewal(ground.supervisor, self._report, self._accept_grants)
        work = LeasedWork(
            ground.supervisor,
            self._client,
            self._cancel_limit_s,
            killed_for_memory=ground.killed_for_memory,
            report_soon=self._changed,
            refusal=lambda: self._broken or unrecoverable(renewal.grants),
            tasks=self._tasks,
        )
        return _Open(ground, work, renewal)

    async def _first_grants(self, opened: _Open) -> None:
        """Wait for the first grants, or where the pool is eager for its first worker."""
        eager = opened.ground.eager
        if eager:
            warm_up = plain_demand(WARM_UP, min(eager, self._workers_max or eager))
            self.set_demand(WARM_UP, replace(warm_up, software_decode="it only starts processors' workers"))
        while True:
            state = self.state
            mine = state.of(WARM_UP)
            if mine.never is not None:
                raise mine.never
            if mine.slots if eager else opened.renewal.grants.number:
                break
            await state.changed.wait()
        self._demands.pop(WARM_UP, None)
        self._is_stale = True

    def _computed(self, opened: _Open) -> PoolState:
        grants = opened.renewal.grants
        slots = grants.capacity_slots
        slots = slots if self._workers_max is None else min(slots, self._workers_max)
        names = {*self._demands, *opened.work.leases.outstanding(), *grants.waiting}
        held = {name: opened.work.leases.slots_for(name) for name in names}
        return PoolState(
            slots=slots,
            notes=opened.ground.notes(),
            jobs={name: self._job_state(opened, name, slots, held) for name in names},
            others=self._job_state(opened, "", slots, held),
        )

    def _job_state(self, opened: _Open, job: str, pool_slots: int, held: dict[str, int]) -> JobState:
        grants, demand, slots = opened.renewal.grants, self._demands.get(job), held.get(job, 0)
        never = None if slots else self._broken or unrecoverable(grants) or impossible(grants, job, demand)
        used = sum(held[name] for name in {job, *self._demands} & held.keys())
        cores = self._cores(demand, slots, pool_slots, used, is_alone=opened.ground.is_alone)
        return JobState(slots, cores, grants.waiting.get(job, ""), never)

    def _cores(self, demand: Demand | None, slots: int, pool_slots: int, used: int, *, is_alone: bool) -> int:
        """Return the cores of a job's slots, and those that stay idle beside: on a cluster as many again at most.

        A slot is a core. Where a user limits the slots, of the pool or of the job, it is two.
        """
        cores = pool_slots * (1 if self._workers_max is None else CORES_OF_A_SLOT)
        idle = max(0, cores - used)
        found = slots + (idle if is_alone else min(idle, slots))
        limited = demand is not None and demand.workers_max
        return min(found, limited * CORES_OF_A_SLOT) if limited else found

    def _changed(self) -> None:
        """Note that the state is another now, and report soon."""
        self._is_stale = True
        self._state.changed.set()
        if self._open is not None:
            self._open.renewal.report_soon()

    def _report(self) -> ClientReport:
        opened = self._opened()
        work, late = opened.work, opened.ground.late
        outstanding = work.leases.outstanding()
        plain = {name: plain_demand(name, count, self._workers_max) for name, count in outstanding.items()}
        wanted = self._demands if late is None else {name: late.bounded(each) for name, each in self._demands.items()}
        followed = plain if late is None else {name: late.followed(each) for name, each in plain.items()}
        wanted = followed | wanted
        demands = {name: _ours(_at_least(demand, outstanding.get(name, 0))) for name, demand in wanted.items()}
        jobs = tuple(JobReport(demand, work.leases.held(name)) for name, demand in demands.items())
        return ClientReport(
            self._client,
            _where(),
            next(self._sequence),
            jobs,
            work.workers.proven,
            acknowledged=opened.renewal.grants.number,
            faults=work.faults.recent,
            written_off=dict(work.workers.hung),
            behind=tuple(map(_ours, self._behind.told(self._demands, self._workers_max))),
        )

    def _accept_grants(self) -> None:
        opened = self._opened()
        grants = opened.renewal.grants
        opened.work.granted(grants)
        # Running work may still succeed; that of dead workers has failed.
        opened.work.refuse_waiting(lambda job: unrecoverable(grants) or broken(grants, job, self._demands.get(job)))
        self._is_stale = True
        self._state.changed.set()

    def _break(self, task: str, error: BaseException) -> None:
        """End with the task that failed: nothing runs any more, and everybody hears why."""
        self._broken = FleetUnavailable(f"the pool failed at {task}: {type(error).__name__}: {error}", _DEFECT)
        if self._open is not None:
            self._open.work.fail_all(self._broken)
        self._changed()

    async def _close(self) -> None:
        if self._opening is not None:
            await self._opening.cancel()
        if self._open is None:
            return
        await self._open.work.cancel_all()
        await self._tasks.end()
        with suppress(Exception):  # an unreachable supervisor notices the missing renewals
            await asyncio.wait_for(self._open.ground.supervisor.depart(self._client), SHUTDOWN_GRACE_S)
        await _leave(self._open.ground)

    def _opened(self) -> _Open:
        if self._open is None:
            raise FleetUnavailable("the pool is not started", "Start it first.")
        return self._open


async def _leave(ground: Ground) -> None:
    try:
        await ground.supervisor.close()
    finally:
        await ground.release()


async def _preview(supervisor: SupervisorClient, demand: Demand) -> PlacementPreview:
    try:
        return await asyncio.wait_for(supervisor.preview(_ours(demand)), ANSWER_S)
    except Exception as error:  # noqa: BLE001 - the edge: the caller decides what a missing answer means
        return PlacementPreview(unknown=f"the supervisor does not answer: {first_line(error)}")


def _where() -> str:
    """Return where this client runs, as people know it: its Ray job, or its process."""
    job, host = submission_id(os.environ), socket.gethostname()
    return f"Ray job {job} on {host}" if job else f"{host} process {os.getpid()}"


def _at_least(demand: Demand, pieces: int) -> Demand:
    """Return a demand for at least ``pieces`` slots: audio tracks and retries are not segments, yet need slots."""
    return replace(demand, segments=demand.segments + (PLAIN_FRAMES,) * (pieces - len(demand.segments)))


def _ours(demand: Demand) -> Demand:
    """Return a demand for workers that make the bytes which this program plans."""
    return replace(demand, pyav=PYAV)
