"""Joins the core with the placement it decides by."""

from collections.abc import Sequence

from ..placement.demand import Demand
from ..placement.inventory import Inventory
from ..placement.place import place
from ..placement.placement import Placement
from ..placement.policy import Policy
from ..placement.rates import start_rates
from ..probes.engines import Engine
from .core import Core
from .settings import SupervisorSettings

__all__ = ["make_core"]


def make_core(settings: SupervisorSettings, engines: frozenset[Engine], first_epoch: int, now_s: float) -> Core:
    """Return a core that places work on ``engines`` by the default rates and policy."""
    rates, policy = start_rates(), Policy(engines=engines)

    def plan(demands: Sequence[Demand], inventory: Inventory) -> Placement:
        return place(demands, inventory, rates, policy)

    return Core(plan, settings, first_epoch, now_s)
