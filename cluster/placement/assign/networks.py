"""Places the jobs that run networks. Only numbers of sessions count: a network's speed is unknown before it runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...probes.report.device_kinds import Route
from ..model.demand import Demand
from ..model.inventory import Device, DeviceState, Inventory, Node, dla_number
from ..model.placement import Lane, Placement, Refusal
from ..model.policy import Policy, PreemptibleUse
from .fill import sessions_wanted
from .options import node_refusal

SESSIONS_PER_DLA = 2
"""How many segments run at a time on a DLA: one is decoded while the network processes the other."""
CORES_PER_SESSION = 1.0
"""How many cores decode, scale and normalise the pictures of a session."""


def place_networks(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> Placement:
    """Return the DLAs of each job, or why the job has none; a job's sessions are spread over all its DLAs.

    Within a priority, each session goes to the job with the fewest sessions relative to its weight.
    """
    places = [(node, dla) for node in sorted(inventory.nodes, key=lambda node: node.node) for dla in node.dlas]
    refused = [_refusal(node, dla, policy) for node, dla in places]
    freely = policy.preemptible is PreemptibleUse.FREELY
    taken = [0] * len(places)
    claims = []
    for demand in sorted(demands, key=lambda each: (-each.priority, each.job)):
        asked = [at for at, (_, dla) in enumerate(places) if not demand.dlas or dla_number(dla) in demand.dlas]
        claims.append(_Claim(demand, asked, [at for at in asked if not refused[at]]))
    while hungry := [claim for claim in claims if claim.wants_more and claim.free(taken)]:
        claim = min(hungry, key=lambda claim: claim.order)
        # The DLA with the fewest sessions is chosen; DLAs of preemptible nodes come last.
        at = min(claim.free(taken), key=lambda at: (places[at][0].preemptible and not freely, taken[at], at))
        taken[at] += 1
        claim.given[at] += 1
    lanes = [
        _lane(claim.demand.job, *places[at], sessions)
        for claim in claims
        for at, sessions in sorted(claim.given.items())
    ]
    refusals = [
        Refusal(claim.demand.job, _why_nothing(claim, refused, inventory)) for claim in claims if not claim.given
    ]
    return Placement(tuple(lanes), tuple(refusals))


def no_dla_for(demand: Demand, inventory: Inventory) -> str:
    """Return why no machine has a DLA that suits a job; "" if there is one, whatever its state."""
    numbers = {dla_number(dla) for node in inventory.nodes for dla in node.dlas}
    if not numbers:
        return "no machine has a DLA"
    wanted = set(demand.dlas or numbers)
    missing = " or ".join(map(str, sorted(wanted)))
    return "" if numbers & wanted else f"no machine has DLA {missing}: DLAs are counted from 0"


@dataclass(slots=True)
class _Claim:
    """A job, and the sessions that it has received so far. DLAs are numbers: their indices in the list of all DLAs."""

    demand: Demand
    asked: list[int]  # the DLAs that the job requests
    usable: list[int]  # the requested DLAs that accept work
    given: Counter[int] = field(default_factory=Counter)

    @property
    def wants_more(self) -> bool:
        return self.given.total() < sessions_wanted(self.demand)

    @property
    def order(self) -> tuple[int, float, str]:
        return (-self.demand.priority, self.given.total() / max(float(self.demand.weight), 1e-6), self.demand.job)

    def free(self, taken: Sequence[int]) -> list[int]:
        return [at for at in self.usable if taken[at] < SESSIONS_PER_DLA]


def _lane(job: str, node: Node, dla: Device, sessions: int) -> Lane:
    return Lane(
        job=job,
        node=node.node,
        device=dla.device,
        route=Route.DLA,
        sessions=sessions,
        fps=0.0,
        cores=sessions * CORES_PER_SESSION,
        memory_bytes=0,
        kinds=(),
        reason=Route.DLA.why.format(dla_number(dla)),
    )


def _refusal(node: Node, dla: Device, policy: Policy) -> str:
    if dla.state is not DeviceState.OPEN:
        return f"{dla.name} is {dla.state.value} because {dla.state_reason}"
    return node_refusal(node, policy)


def _why_nothing(claim: _Claim, refused: Sequence[str], inventory: Inventory) -> str:
    if not claim.demand.segments:
        return "nothing is left to do"
    if claim.usable:
        return "all DLAs are busy with other work"
    return no_dla_for(claim.demand, inventory) or f"no DLA can run the network: {refused[claim.asked[0]]}"
