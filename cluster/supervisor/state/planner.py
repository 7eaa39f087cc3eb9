"""Where demands go, by the owner's policy and the rates that workers' measurements have taught."""

from collections.abc import Sequence

from ...placement.assign.assignment import place
from ...placement.assign.networks import place_networks
from ...placement.model.demand import Demand
from ...placement.model.inventory import Inventory
from ...placement.model.placement import Placement
from ...placement.model.policy import Policy
from ...placement.rates import start_rates


class Planner:
    """Places demands by documented rates that follow workers' measurements."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rates = start_rates()

    def place(self, demands: Sequence[Demand], inventory: Inventory, *, in_full: bool = True) -> Placement:
        """Return where demands go; networks have the DLAs to themselves and do not affect transcodes.

        ``in_full`` names for each job also the devices that could do it and are not used.
        """
        medias = [demand for demand in demands if demand.dlas is None]
        media = place(medias, inventory, self.rates, self.policy, in_full=in_full)
        networks = place_networks([each for each in demands if each.dlas is not None], inventory, self.policy)
        return Placement((*media.lanes, *networks.lanes), (*media.refusals, *networks.refusals))
