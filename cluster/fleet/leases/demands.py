"""The demands of a client's jobs, and each job's share of the granted slots. Does no I/O."""

from dataclasses import replace
from typing import Final

from ....errors import CodecfleetError, FleetUnavailable, NotEnoughMemory, Unsupported
from ...autoscale.later import LaterDemand, LaterDemands
from ...placement.model.demand import PLAIN_FRAMES, Demand, plain_demand
from ...supervisor.state.messages import Grants, JobReport
from ...version import PYAV
from ..pool import Asked, JobState, PoolState
from .ground import Ground
from .late_ray import LateRay
from .leases import Leases

CORES_OF_A_SLOT: Final = 2
"""The most cores for each slot if a user limits the slots."""
_BROKEN: Final = (
    "Run `codecfleet doctor` on the devices' machine and read its kernel log, or run without these devices."
)


class Demands:
    """The demands of a client's jobs. One job gets at most ``slots_max`` slots; None means no limit."""

    def __init__(self, slots_max: int | None) -> None:
        self._slots_max = slots_max
        self._demands: dict[str, Demand] = {}
        self._later = LaterDemands()

    def set(self, job: str, demand: Asked) -> bool:
        """Set a job's demand; return whether it changed."""
        if isinstance(demand, LaterDemand):
            self._later.set(job, demand)
            return True
        limits = [limit for limit in (demand.workers_max, self._slots_max) if limit is not None]
        demand = replace(demand, workers_max=min(limits, default=None))
        is_new = self._demands.get(job) != demand
        self._demands[job] = demand
        return is_new

    def clear(self, job: str) -> None:
        """Forget a job's demand."""
        self._demands.pop(job, None)
        self._later.clear(job)

    def reported(self, leases: Leases, late: LateRay | None) -> tuple[JobReport, ...]:
        """Return the jobs to report to the supervisor: those with a demand or with work."""
        outstanding = leases.outstanding()
        plain = {name: plain_demand(name, count, self._slots_max) for name, count in outstanding.items()}
        wanted = self._demands
        if late is not None:
            wanted = {name: late.bounded(each) for name, each in wanted.items()}
            plain = {name: late.followed(each) for name, each in plain.items()}
        return tuple(
            JobReport(with_pyav(_at_least(demand, outstanding.get(name, 0))), leases.held(name))
            for name, demand in {**plain, **wanted}.items()
        )

    def reported_later(self) -> tuple[Demand, ...]:
        """Return the demands of batches' waiting jobs, which are reported to the supervisor."""
        return tuple(map(with_pyav, self._later.reported(self._demands, self._slots_max)))

    def state(self, ground: Ground, grants: Grants, leases: Leases, failure: CodecfleetError | None) -> PoolState:
        """Return the pool's state; ``failure`` is why no work will ever run, or None."""
        capacity = grants.capacity_slots
        slots = capacity if self._slots_max is None else min(capacity, self._slots_max)
        held = {name: leases.slots_for(name) for name in {*self._demands, *leases.outstanding(), *grants.waiting}}
        cores = slots * (1 if self._slots_max is None else CORES_OF_A_SLOT)

        def job_state(job: str) -> JobState:
            has = held.get(job, 0)
            used = sum(held[name] for name in {job, *self._demands} & held.keys())
            return JobState(
                has,
                self._cores(job, has, idle=max(0, cores - used), is_alone=ground.is_alone),
                grants.waiting.get(job, ""),
                None if has else failure or self._never(grants, job),
            )

        return PoolState(slots, ground.notes(), {name: job_state(name) for name in held}, job_state(""))

    def _cores(self, job: str, slots: int, *, idle: int, is_alone: bool) -> int:
        """Return how many cores a job may use: one for each slot, plus idle cores.

        On a cluster, at most one idle core is added for each slot. If a user limits the slots of the pool or the job to
        N, the job uses at most 2N cores anywhere.
        """
        found = slots + (idle if is_alone else min(idle, slots))
        demand = self._demands.get(job)
        limited = demand is not None and demand.workers_max
        return min(found, limited * CORES_OF_A_SLOT) if limited else found

    def broken(self, grants: Grants, job: str) -> FleetUnavailable | None:
        """Return why the devices that a job needs are lost; None if the devices work."""
        demand = self._demands.get(job)
        # The reason may belong to an earlier demand: the job may now continue in software because NVENC has failed.
        reason = grants.broken.get(job, "") if demand is not None and demand.needs_devices else ""
        return FleetUnavailable(reason, _BROKEN) if reason else None

    def _never(self, grants: Grants, job: str) -> CodecfleetError | None:
        """Return why a job will never get slots; None if it may still get slots."""
        if (lost := unrecoverable(grants) or self.broken(grants, job)) is not None:
            return lost
        if reason := grants.refused.get(job):
            return Unsupported(reason, "Use machines that support this job: docs/fleet.md.")
        if reason := grants.too_large.get(job):
            return NotEnoughMemory(reason, NotEnoughMemory.WHAT_NEXT)
        return None


def unrecoverable(grants: Grants) -> FleetUnavailable | None:
    """Return why no job will ever get slots again; None if jobs may still get slots."""
    return FleetUnavailable(grants.unrecoverable, grants.what_next) if grants.unrecoverable else None


def with_pyav(demand: Demand) -> Demand:
    """Return a demand for workers with this program's PyAV version; other versions may produce other bytes."""
    return replace(demand, pyav=PYAV)


def _at_least(demand: Demand, tasks: int) -> Demand:
    """Return a demand for at least ``tasks`` slots; audio tracks and retries need slots too."""
    return replace(demand, segments=demand.segments + (PLAIN_FRAMES,) * (tasks - len(demand.segments)))
