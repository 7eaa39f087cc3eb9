"""Where jobs that run a network go: a pure function, independent of ``place``.

A network's speed on a DLA is unknown before it has run, so DLAs are assigned by number of sessions alone, and what is
placed on them never moves a transcode.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..model.demand import Demand
from ..model.inventory import DeviceState, Dla, Inventory, Node
from ..model.placement import Lane, Placement, Refusal, Route
from ..model.policy import Policy, PreemptibleUse
from .fill import sessions_wanted
from .options import node_refusal

SESSIONS_PER_DLA = 2
"""Segments at a time on a DLA: while one's pictures are decoded, the other's are inferred."""
CORES_PER_SESSION = 1.0
"""What decoding, scaling and normalising take."""


def place_networks(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> Placement:
    """Return which DLAs each job gets, and why it gets none.

    Jobs of a higher priority come first; within one, the next session goes to the job with the smallest weighted number
    of them. A job's sessions are spread over all DLAs. The order of demands and nodes makes no difference.

    Args:
        demands: jobs that run a network: ``Demand.dlas`` is not None. Every job's name is unique.
        inventory: every node, whatever its state.
        policy: what may be used.
    """
    nodes = sorted(inventory.nodes, key=lambda node: node.node)
    places = [_Place(node, dla) for node in nodes for dla in node.dlas]
    claims = [_claim(demand, places, policy) for demand in sorted(demands, key=lambda each: (-each.priority, each.job))]
    while True:
        hungry = [claim for claim in claims if claim.wants_more and claim.next_place() is not None]
        if not hungry:
            break
        min(hungry, key=lambda claim: claim.order).take()
    lanes = tuple(lane for claim in claims for lane in claim.lanes())
    refusals = tuple(
        Refusal(claim.demand.job, _why_nothing(claim, inventory)) for claim in claims if not claim.sessions
    )
    return Placement(lanes, refusals)


def no_dla_for(demand: Demand, inventory: Inventory) -> str:
    """Say why no machine has a DLA for a job, whatever its state; "" where one has."""
    numbers = {dla.number for node in inventory.nodes for dla in node.dlas}
    if not numbers:
        return "no machine has a DLA"
    wanted = set(demand.dlas or numbers)
    return (
        ""
        if numbers & wanted
        else f"no machine has DLA {' or '.join(map(str, sorted(wanted)))}: they are counted from 0"
    )


@dataclass(slots=True)
class _Place:
    """A DLA while sessions are assigned."""

    node: Node
    dla: Dla
    taken: int = 0


@dataclass(slots=True, eq=False)
class _Claim:
    """A job while it is served. ``given`` counts its sessions by index in ``places``."""

    demand: Demand
    places: list[_Place]
    policy: Policy
    refused: list[str]
    given: dict[int, int] = field(default_factory=dict)

    @property
    def sessions(self) -> int:
        return sum(self.given.values())

    @property
    def wants_more(self) -> bool:
        return self.sessions < sessions_wanted(self.demand)

    @property
    def order(self) -> tuple[int, float, str]:
        return (-self.demand.priority, self.sessions / max(float(self.demand.weight), 1e-6), self.demand.job)

    def next_place(self) -> int | None:
        """Return the index of the emptiest DLA with room; preemptible nodes come last."""
        freely = self.policy.preemptible is PreemptibleUse.FREELY
        free = [
            (place.node.preemptible and not freely, place.taken, index)
            for index, place in enumerate(self.places)
            if place.taken < SESSIONS_PER_DLA
        ]
        return min(free)[-1] if free else None

    def take(self) -> None:
        index = self.next_place()
        if index is not None:
            self.places[index].taken += 1
            self.given[index] = self.given.get(index, 0) + 1

    def lanes(self) -> Iterator[Lane]:
        for index, sessions in sorted(self.given.items()):
            place = self.places[index]
            yield Lane(
                job=self.demand.job,
                node=place.node.node,
                device=place.dla.device,
                route=Route.DLA,
                sessions=sessions,
                fps=0.0,
                cores=sessions * CORES_PER_SESSION,
                memory_bytes=0,
                kinds=(),
                reason=f"the processor decodes, and the network runs on DLA {place.dla.number}",
            )


def _claim(demand: Demand, places: Sequence[_Place], policy: Policy) -> _Claim:
    asked = [place for place in places if not demand.dlas or place.dla.number in demand.dlas]
    refusals = [_refusal(place, policy) for place in asked]
    usable = [place for place, refusal in zip(asked, refusals, strict=True) if not refusal]
    return _Claim(demand, usable, policy, [refusal for refusal in refusals if refusal])


def _refusal(place: _Place, policy: Policy) -> str:
    if place.dla.state is not DeviceState.OPEN:
        return f"DLA {place.dla.number} is {place.dla.state.value} because {place.dla.state_reason}"
    return node_refusal(place.node, policy)


def _why_nothing(claim: _Claim, inventory: Inventory) -> str:
    if not claim.demand.segments:
        return "nothing is left to do"
    if claim.places:
        return "every DLA is taken by other work just now"
    return no_dla_for(claim.demand, inventory) or f"no DLA can do it: {claim.refused[0]}"
