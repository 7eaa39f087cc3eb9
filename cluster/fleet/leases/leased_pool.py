"""The pool on Ray: work runs on workers that a supervisor has leased to this client.

The pool repeatedly reports what its jobs want and hold, and receives what they may use. Work goes straight to the
workers: while a supervisor is down, running work and leased slots are unaffected.

This module imports ray: import it only after ``embedded.connect`` has settled the environment that Ray reads then.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ....actors.device.work import Work
from ....errors import CodecfleetError, FleetUnavailable, UsageError
from ...autoscale.behind import WorkBehind
from ...placement.model.demand import PLAIN_FRAMES, Demand, plain_demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_environment import submission_id
from ...ray.ray_words import first_line
from ...releases import OURS, PYAV
from ...supervisor.runner.client import SupervisorClient
from ...supervisor.state.messages import ClientReport, JobReport
from ...supervisor.status.history import History
from ...supervisor.status.status import Status
from ..client_name import ClientName
from ..pool import Pool
from .lease_renewal import ANSWER_S, LeaseRenewal
from .leased_work import CANCEL_LIMIT_S, SHUTDOWN_GRACE_S, LeasedWork
from .refusals import broken, impossible, unrecoverable, when_admitted

ResultT = TypeVar("ResultT")

PROBE_QUESTIONS = 6
"""How often a job asks for its preview while GPUs are probed; the supervisor holds each call for 10 s."""
CORES_OF_A_SLOT = 2
"""Where a user limits the slots."""
WARM_UP = "warm-up"
"""The job for which an eager pool gets its workers before any other."""


class LeasedPool(Pool):
    """Runs work on workers that ``supervisor`` leases.

    Args:
        supervisor: opened and closed by the pool.
        workers_max: pieces of work of one job at a time; None means as many as granted.
        eager: the pieces of work for which to get workers at once, and keep them; 0 gets them with the first job.
        notes: lines for every job's report.
        cancel_limit_s: how long cancelled work may take to end before its worker counts as hung, in whole seconds in
            which this process is awake.
        name: what this client is called. Connections of its fleet that are gone give their slots back at once.
        is_alone: no other client has workers on these machines.
        killed_for_memory: says of each death of a worker whether the kernel's OOM killer explains it.
        reported: returns what the supervisor is to know of a job's demand.
        followed: returns what it is to know of work without a demand, such as what outlasts its job's.
    """

    def __init__(
        self,
        supervisor: SupervisorClient,
        workers_max: int | None = None,
        *,
        eager: int = 0,
        notes: tuple[str, ...] = (),
        cancel_limit_s: int = CANCEL_LIMIT_S,
        name: ClientName | None = None,
        is_alone: bool = False,
        killed_for_memory: Callable[[], bool] = bool,
        reported: Callable[[Demand], Demand] = lambda demand: demand,
        followed: Callable[[Demand], Demand] = lambda demand: demand,
    ) -> None:
        if workers_max is not None and workers_max < 1:
            raise UsageError(f"a pool needs at least one slot: {workers_max}")
        self._supervisor = supervisor
        self._workers_max = workers_max
        self._eager = eager
        self._notes = notes
        self._name = name or ClientName()
        self._client = str(self._name)
        self._is_alone = is_alone
        self._reported = reported
        self._followed = followed
        self._sequence = itertools.count(1)
        self._demands: dict[str, Demand] = {}
        self._behind = WorkBehind()
        self._granted = asyncio.Event()
        self._lease_renewal = LeaseRenewal(supervisor, self._report, self._accept_grants)
        self._work = LeasedWork(
            supervisor,
            self._client,
            cancel_limit_s,
            killed_for_memory=killed_for_memory,
            report_soon=self._lease_renewal.report_soon,
        )
        self._opening: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def slots(self) -> int:
        """How many pieces of work of one job could run at the same time; known once the pool has started."""
        capacity = self._lease_renewal.grants.capacity_slots
        return capacity if self._workers_max is None else min(capacity, self._workers_max)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    @property
    def lost(self) -> str:
        """Why nothing will be reached again through this connection to Ray; "" while it may be."""
        return self._supervisor.world_is_gone() or self._lease_renewal.lost

    @property
    def spent(self) -> str:
        """Why no work will ever run here again; "" while it may."""
        return self._lease_renewal.grants.unrecoverable

    def slots_for(self, job: str) -> int:
        return self._work.leases.slots_for(job)

    def cores_for(self, job: str) -> int:
        """Return the cores of a job's slots, and those that stay idle beside: on a cluster as many again at most.

        A slot is a core. Where a user limits the slots, of the pool or of the job, it is two.
        """
        demand = self._demands.get(job)
        slots, used = self._work.leases.slots_for(job), sum(map(self._work.leases.slots_for, {job, *self._demands}))
        cores = self.slots * (1 if self._workers_max is None else CORES_OF_A_SLOT)
        idle = max(0, cores - used)
        found = slots + (idle if self._is_alone else min(idle, slots))
        limited = demand is not None and demand.workers_max
        return min(found, limited * CORES_OF_A_SLOT) if limited else found

    async def more_slots(self, job: str, beyond: int) -> None:
        """Wait until more than ``beyond`` pieces of work of ``job`` may run.

        Raises:
            FleetUnavailable: no slots will ever come, or the devices that the job needs are broken.
            Unsupported: no machine of the fleet can ever do what the job requires.
            NotEnoughMemory: no machine of the fleet has the memory for one segment.
        """
        while self._work.leases.slots_for(job) <= beyond:
            if self._work.leases.slots_for(job) == 0:
                self._refuse_if_unrecoverable()
                if (error := impossible(self._lease_renewal.grants, job, self._demands.get(job))) is not None:
                    raise error
            self._granted.clear()
            await self._granted.wait()

    def waits_for(self, job: str) -> str:
        return self._lease_renewal.grants.waiting.get(job, "")

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where such a job would be placed, after waiting for GPUs that are being probed."""
        for _ in range(PROBE_QUESTIONS):
            preview = await self._ask_preview(demand)
            if not preview.is_probing:
                break
        return preview

    async def _ask_preview(self, demand: Demand) -> PlacementPreview:
        try:
            return await asyncio.wait_for(self._supervisor.preview(_ours(demand)), ANSWER_S)
        except Exception as error:  # noqa: BLE001 - the edge: the caller decides what a missing answer means
            return PlacementPreview(unknown=f"the supervisor does not answer: {first_line(error)}")

    async def status(self) -> Status | None:
        return self._supervisor.status()

    async def history(self, stations: tuple[str, ...]) -> History:
        return self._supervisor.history(stations)

    def set_demand(self, demand: Demand) -> None:
        limits = [limit for limit in (demand.workers_max, self._workers_max) if limit is not None]
        demand = replace(demand, workers_max=min(limits, default=None))
        if self._demands.get(demand.job) != demand:
            self._demands[demand.job] = demand
            self._lease_renewal.report_soon()

    def clear_demand(self, job: str) -> None:
        self._demands.pop(job, None)
        self._work.forget(job)
        self._lease_renewal.report_soon()

    def set_behind(self, batch: str, like: str, segments: int, frames: int) -> None:
        self._behind.set(batch, like, segments, frames)
        self._lease_renewal.report_soon()

    async def start(self) -> None:
        """Reach the supervisor; an eager pool also waits for its first worker.

        Raises:
            FleetUnavailable: there is nothing to run on.
        """
        self._refuse_if_closed()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        try:
            await self._supervisor.open()
            for gone in self._name.earlier:
                await self._supervisor.depart(gone)
        except CodecfleetError:
            raise
        except Exception as error:  # Ray raises errors of many kinds
            message = f"the supervisor cannot be reached: {first_line(error)}"
            raise FleetUnavailable(message, self._supervisor.what_next) from error
        self._renewing = asyncio.create_task(self._lease_renewal.run())
        if self._eager:
            warm_up = plain_demand(WARM_UP, min(self._eager, self._workers_max or self._eager))
            self.set_demand(replace(warm_up, software_decode="it only starts processors' workers"))
            await self.more_slots(WARM_UP, 0)
            del self._demands[WARM_UP]
        else:
            self._granted.clear()
            self._lease_renewal.report_soon()
            await self._granted.wait()
        self._refuse_if_unrecoverable()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on a worker and return its result.

        Large NumPy arrays in the result are read-only views of Ray's object store, not copies.

        Raises:
            WorkerLost: the process or its node died.
            FleetUnavailable: nothing is left to run on.
            UsageError: the work does not pickle, or the pool is closed.
            Cancelled: the pool was closed while the work waited or ran.
            CodecfleetError: raised by the work; its other errors arrive as WorkError.
        """
        return await (when_admitted(partial(self._submit, work)) if work.may_wait else self._submit(work))

    async def _submit(self, work: Work[ResultT]) -> ResultT:
        self._refuse_if_closed()
        self._refuse_if_unrecoverable()
        return await self._work.run(work)

    async def progress(self, job: str) -> Mapping[str, int]:
        """Frames done by the running work of ``job``, by label; processes silent for 1 s are left out."""
        return await self._work.progress(job)

    async def serve_files(self) -> str:
        return await self._supervisor.serve_files(self._client)

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        self._work.faults.found_wrong(job, label, reason)
        self._lease_renewal.report_soon()

    def found_doubtful(self, job: str, label: str, reason: str) -> None:
        self._work.faults.found_wrong(job, label, reason, is_doubtful=True)
        self._lease_renewal.report_soon()

    async def stations(self, job: str) -> Mapping[str, str]:
        return self._work.leases.stations(job)

    async def write_off(self, job: str, label: str, reason: str) -> None:
        """Have the supervisor kill the worker; a frozen node's, which it cannot reach, fences itself later."""
        self._work.write_off(job, label, reason)

    async def aclose(self) -> None:
        """Cancel running work, give it half a second to end, and release the workers."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def _report(self) -> ClientReport:
        outstanding = self._work.leases.outstanding()
        plain = {name: plain_demand(name, count, self._workers_max) for name, count in outstanding.items()}
        wanted = {name: self._reported(demand) for name, demand in self._demands.items()}
        wanted = {name: self._followed(demand) for name, demand in plain.items()} | wanted
        demands = {name: _ours(_at_least(demand, outstanding.get(name, 0))) for name, demand in wanted.items()}
        jobs = tuple(JobReport(demand, self._work.leases.held(name)) for name, demand in demands.items())
        return ClientReport(
            self._client,
            _where(),
            next(self._sequence),
            jobs,
            self._work.workers.proven,
            acknowledged=self._lease_renewal.grants.number,
            faults=self._work.faults.recent,
            written_off=dict(self._work.workers.hung),
            release=OURS,
            behind=tuple(map(_ours, self._behind.told(self._demands, self._workers_max))),
        )

    def _accept_grants(self) -> None:
        grants = self._lease_renewal.grants
        self._work.granted(grants)
        # Running work may still succeed; that of dead workers has failed.
        self._work.refuse_waiting(lambda job: unrecoverable(grants) or broken(grants, job, self._demands.get(job)))
        self._granted.set()

    async def _close(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        await self._work.cancel_all()
        rest = [task for task in (self._opening, self._renewing, *self._work.tasks) if task is not None]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        with suppress(Exception):  # an unreachable supervisor notices the missing renewals
            await asyncio.wait_for(self._supervisor.depart(self._client), SHUTDOWN_GRACE_S)
        await self._supervisor.close()

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise UsageError("the pool is closed")

    def _refuse_if_unrecoverable(self) -> None:
        if (error := unrecoverable(self._lease_renewal.grants)) is not None:
            raise error


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
