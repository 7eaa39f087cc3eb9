"""From probe reports to an inventory."""

from .assumed import plain_demand
from .build import inventory_of_fleet, inventory_of_processor
from .guest_share import shared_by_policy

__all__ = ["inventory_of_fleet", "inventory_of_processor", "plain_demand", "shared_by_policy"]
