"""Where every job's segments run: one pure, deterministic, synchronous function.

Priorities are strict: a lower one gets what a higher one leaves. Within a priority everybody gets a first session
before anybody gets a second, if there is any way to give them out so. Then whoever has the smallest weighted share of
the engines it presses on most gets the next session (dominant resource fairness: Ghodsi et al., NSDI 2011), until each
has what it can use or nothing more fits; so a share that is not used flows on to the others. docs/placement.md has the
rules in plain words.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..model.demand import Demand
from ..model.inventory import Inventory
from ..model.placement import Placement
from ..model.policy import Policy
from ..rates.rates import Rates
from .fill import Fill
from .lanes import lanes_and_refusals
from .ledger import Ledger
from .options import Catalogue

__all__ = ["place"]


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
    fills: list[Fill] = []
    for members in _by_priority(demands):
        fill = Fill(members, ledger, catalogue, policy)
        fill.run()
        fills.append(fill)
    return lanes_and_refusals(fills, ledger, catalogue)


def _by_priority(demands: Iterable[Demand]) -> list[list[Demand]]:
    ordered = sorted(demands, key=lambda demand: (-demand.priority, demand.job))
    return [list(members) for _, members in groupby(ordered, key=lambda demand: demand.priority)]
