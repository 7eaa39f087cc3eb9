"""Where every job's segments run: one pure, deterministic, synchronous function.

Priorities are strict: a lower one gets what a higher one leaves. Within a priority every job gets a first session
before any gets a second, where that is possible. Then the job with the smallest weighted share of its busiest engine
gets the next session (dominant resource fairness: Ghodsi et al., NSDI 2011), until each has what it can use or nothing
more fits; so unused shares go to the others. docs/placement.md explains the rules.
"""

from collections.abc import Sequence
from itertools import groupby

from ..model.demand import Demand
from ..model.inventory import Inventory
from ..model.placement import Placement
from ..model.policy import Policy
from ..rates import Rates
from .fill import Fill
from .lanes import lanes_and_refusals
from .ledger import Ledger
from .options import Catalogue


def place(demands: Sequence[Demand], inventory: Inventory, rates: Rates, policy: Policy) -> Placement:
    """Return where each demand's segments run, and why not elsewhere.

    The order of demands and of nodes makes no difference; that of a node's devices does, for equals. Every demand's
    ``job`` is unique. Nothing here is random, waits, or looks at a clock.

    Args:
        demands: what every job has left to do.
        inventory: every node, whatever its state.
        rates: how fast engines are.
        policy: what may be used.
    """
    nodes = sorted(inventory.nodes, key=lambda node: node.node)
    ledger = Ledger.opened(nodes, policy, rates.hardware)
    catalogue = Catalogue(ledger, rates, policy)
    ordered = sorted(demands, key=lambda demand: (-demand.priority, demand.job))
    fills = [
        Fill(members, ledger, catalogue, policy) for _, members in groupby(ordered, key=lambda demand: demand.priority)
    ]
    for fill in fills:
        fill.run()
    return lanes_and_refusals([claim for fill in fills for claim in fill.claims], ledger, catalogue)
