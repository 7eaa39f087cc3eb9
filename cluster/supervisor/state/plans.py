"""What the last placement says: where each job runs, why not elsewhere, and which slots it has at which station."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...placement.model.placement import Lane, Placement, Refusal

Targets = Mapping[str, Mapping[str, int]]
"""Slots: {station: {job: slots}}."""


@dataclass(slots=True)
class JobPlan:
    """Where one job runs."""

    lanes_at: dict[str, list[Lane]] = field(default_factory=dict)  # by node
    refusals: list[Refusal] = field(default_factory=list)  # why it is nowhere, or not on some devices
    slots: dict[str, int] = field(default_factory=dict)  # by station

    @property
    def lanes(self) -> Iterator[Lane]:
        """All its lanes."""
        return (lane for lanes in self.lanes_at.values() for lane in lanes)


_NOTHING = JobPlan()


class Plans:
    """Every job's plan."""

    def __init__(self, placement: Placement | None = None, targets: Targets | None = None) -> None:
        self.placement = placement or Placement((), ())
        self.targets = {station: dict(wanted) for station, wanted in (targets or {}).items()}
        self._jobs: dict[str, JobPlan] = {}
        for lane in self.placement.lanes:
            self._plan(lane.job).lanes_at.setdefault(lane.node, []).append(lane)
        for refusal in self.placement.refusals:
            self._plan(refusal.job).refusals.append(refusal)
        for station, wanted in self.targets.items():
            for job, slots in wanted.items():
                self._plan(job).slots[station] = slots

    def of(self, job: str) -> JobPlan:
        """Return where a job runs."""
        return self._jobs.get(job, _NOTHING)

    def _plan(self, job: str) -> JobPlan:
        return self._jobs.get(job) or self._jobs.setdefault(job, JobPlan())
