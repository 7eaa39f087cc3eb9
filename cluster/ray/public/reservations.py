"""Reservations, which are named, detached placement groups with one bundle on one node."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

Reservation: TypeAlias = "PlacementGroup"

_NODE_LABEL: Final = "ray.io/node-id"


def reserve(node: str, bundle: Mapping[str, float], name: str) -> Reservation:
    """Request a reservation on a node; the node's resources are reserved when the reservation's ``ready`` resolves."""
    from ray.util.placement_group import placement_group

    selectors = [{_NODE_LABEL: node}]
    group: Reservation = placement_group(
        [dict(bundle)], strategy="STRICT_PACK", name=name, lifetime="detached", bundle_label_selector=selectors
    )
    return group


def reservation(name: str) -> Reservation:
    """Return the reservation with this name. Raises ValueError if there is none."""
    from ray.util import get_placement_group

    group: Reservation = get_placement_group(name)
    return group


def reservation_names(prefix: str) -> list[str]:
    """Return the names of all reservations that begin with a prefix, without the prefix."""
    from ray.util.placement_group import placement_group_table

    table: dict[str, Any] = placement_group_table()
    names = [entry["name"] for entry in table.values() if entry["state"] != "REMOVED"]
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def give_back(group: Reservation) -> None:
    """End a reservation and everything that runs in it."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def inside(group: Reservation) -> Any:
    """Return the scheduling strategy for work in a reservation."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
