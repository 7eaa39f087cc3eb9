"""What the last conclusions say: where each job runs, why not elsewhere, and which slots it has at which station."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...placement.assign.assignment import ALL_TAKEN
from ...placement.model.placement import Lane, Placement, Refusal

Targets = Mapping[str, Mapping[str, int]]
"""Slots: {station: {job: slots}}."""


@dataclass(slots=True)
class JobPlan:
    """What was concluded for one job: its lanes by node, and its slots by station.

    ``order`` is its place among all jobs, the first first. After a change of single nodes ``refusals`` are still those
    of the last full placement.
    """

    order: int = 0
    lanes_at: dict[str, Sequence[Lane]] = field(default_factory=dict)
    refusals: Sequence[Refusal] = ()
    slots: dict[str, int] = field(default_factory=dict)

    @property
    def lanes(self) -> Iterator[Lane]:
        """All its lanes."""
        return (lane for lanes in self.lanes_at.values() for lane in lanes)


_NOTHING = JobPlan()


class Plans:
    """Every job's plan; ``targets`` are {station: {job: slots}}."""

    def __init__(self, placement: Placement | None = None) -> None:
        self.targets: dict[str, dict[str, int]] = {}
        self._jobs: dict[str, JobPlan] = {}
        self._at: dict[str, set[str]] = {}
        """The jobs with lanes on a node, by node."""
        lanes: dict[str, dict[str, list[Lane]]] = {}
        refusals: dict[str, list[Refusal]] = {}
        for lane in () if placement is None else placement.lanes:
            lanes.setdefault(lane.job, {}).setdefault(lane.node, []).append(lane)
            self._at.setdefault(lane.node, set()).add(lane.job)
        for refusal in () if placement is None else placement.refusals:
            refusals.setdefault(refusal.job, []).append(refusal)
        for order, job in enumerate(dict.fromkeys((*lanes, *refusals))):
            self._jobs[job] = JobPlan(order, dict(lanes.get(job, {})), refusals.get(job, ()))

    @property
    def placement(self) -> Placement:
        """All lanes and refusals."""
        plans = self._jobs.values()
        return Placement(
            tuple(lane for plan in plans for lane in plan.lanes),
            tuple(refusal for plan in plans for refusal in plan.refusals),
        )

    def of(self, job: str) -> JobPlan:
        """Return what was concluded for a job."""
        return self._jobs.get(job, _NOTHING)

    def at(self, nodes: Iterable[str]) -> list[str]:
        """Return the jobs with lanes on nodes, in order."""
        found = set[str]().union(*(self._at.get(node, ()) for node in nodes))
        return sorted(found, key=lambda job: self._jobs[job].order)

    def place_again(self, job: str, lanes: Mapping[str, Sequence[Lane]]) -> None:
        """Change a job's lanes on the nodes that are named; those on others stay."""
        plan = self._jobs[job]
        now = {node: here for node, here in {**plan.lanes_at, **lanes}.items() if here}
        plan.lanes_at = now if now.keys() == plan.lanes_at.keys() else dict(sorted(now.items()))
        for node, here in lanes.items():
            jobs = self._at.setdefault(node, set())
            (jobs.add if here else jobs.discard)(job)
        elsewhere = [refusal for refusal in plan.refusals if refusal.devices]
        plan.refusals = elsewhere if plan.lanes_at else [Refusal(job, ALL_TAKEN), *elsewhere]

    def assign(self, stations: Iterable[str], targets: Targets) -> None:
        """Change which slots jobs have at ``stations``; those at others stay."""
        for station in stations:
            for job in self.targets.pop(station, {}):
                self._jobs[job].slots.pop(station, None)
        for station, wanted in targets.items():
            self.targets[station] = dict(wanted)
            for job, slots in wanted.items():
                self._jobs[job].slots[station] = slots
