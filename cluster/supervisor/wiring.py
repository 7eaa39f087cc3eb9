"""Joins the core with the placement it decides by."""

from collections.abc import Sequence

from ..placement.demand import Demand
from ..placement.inventory import Device, Inventory
from ..placement.place import place
from ..placement.placement import Placement
from ..placement.policy import Policy
from ..placement.rates import learn, start_rates
from ..placement.software_rates import software_measurement
from ..probes.engines import Engine
from .core import Core
from .settings import SupervisorSettings
from .state import Planner

__all__ = ["PlacingPlanner", "make_core"]


class PlacingPlanner(Planner):
    """Plans with ``place``, by rates that begin as documented and follow what workers measure."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rates = start_rates()

    def place(self, demands: Sequence[Demand], inventory: Inventory) -> Placement:
        """Return where demands go."""
        return place(demands, inventory, self._rates, self._policy)

    def learn(self, demand: Demand, device: Device, sessions: int, fps: float) -> None:
        """Take in what a processor's worker gave while all its sessions worked for one job."""
        measurement = software_measurement(self._rates, demand, device, sessions, fps)
        if measurement is not None:
            self._rates = learn(self._rates, measurement)


def make_core(settings: SupervisorSettings, engines: frozenset[Engine], first_epoch: int, now_s: float) -> Core:
    """Return a core that places work on ``engines`` by the default policy."""
    return Core(PlacingPlanner(Policy(engines=engines)), settings, first_epoch, now_s)
