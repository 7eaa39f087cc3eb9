"""What ``codecfleet plan`` answers: the plan itself, and where its segments would run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

from ..errors import UsageError
from ..jobs.request.parts import RUN
from .params import named

if TYPE_CHECKING:
    from ..cluster.placement.model import Inventory, Node, Policy
    from ..jobs.plan.placing import PlacedPlan
    from ..jobs.plan.plan import Plan

__all__ = ["FleetOption", "PlanAddressOption", "PlanOn", "PolicyOption", "place_on", "plan_on"]

UNTRIED: Final = "what the GPU can do is what the tables say of its model; codecfleet doctor tries it"

FleetOption = Annotated[
    str | None,
    named(
        "--fleet",
        "FILE.toml",
        "Show where it would run on a simulated fleet: a file, or the name of one of ours: docs/placement.md.",
        RUN,
    ),
]
PlanAddressOption = Annotated[
    str | None,
    named(
        "--address",
        "RAY_ADDRESS",
        "Show where it would run on this Ray cluster (host:port, or auto), whose nodes are probed.",
        RUN,
    ),
]
PolicyOption = Annotated[
    str | None,
    named("--policy", "FILE.toml", "Place by this policy: docs/placement.md. Default: configs/policy.toml.", RUN),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOn:
    """Where a plan is to be placed: on a simulated fleet, on a cluster, or on this machine; by which policy file."""

    fleet: str | None = None
    address: str | None = None
    policy: str | None = None


def plan_on(fleet: str | None, address: str | None, policy: str | None) -> PlanOn:
    """Return the options, checked.

    Raises:
        UsageError: they exclude each other.
    """
    if fleet is not None and address is not None:
        message = "--fleet and --address exclude each other"
        raise UsageError(message, "Plan for a simulated fleet, or for a cluster.")
    return PlanOn(fleet=fleet, address=address, policy=policy)


def place_on(plan: "Plan", on: PlanOn, survey: Callable[[str], "Inventory"]) -> "PlacedPlan":
    """Place a plan; ``survey`` says what the cluster at an address has.

    Raises:
        UsageError: the fleet or the policy file makes no sense.
        FleetUnavailable: the cluster does not answer.
    """
    policy = _policy(on.policy)
    if on.fleet is not None:
        from ..cluster.placement.nodes import inventory_of_fleet
        from ..cluster.simulated.fleet_file import load_fleet

        fleet = load_fleet(on.fleet)
        where = f"the simulated fleet {fleet.name} (figures: {fleet.source})"
        return _placed(plan, inventory_of_fleet(fleet), policy, where)
    if on.address is not None:
        return _placed(plan, survey(on.address), policy, f"the cluster at {on.address}")
    found = _this_machine()
    note = UNTRIED if any(_has_gpu(node) for node in found.nodes) else ""
    return _placed(plan, found, policy, "this machine", note)


def _has_gpu(node: "Node") -> bool:
    from ..cluster.probes.report import DeviceKind

    return any(device.kind is not DeviceKind.CPU for device in node.devices)


def _policy(path: str | None) -> "Policy":
    from ..cluster.placement.model import Policy, load_policy

    return Policy() if path is None else load_policy(path)


def _this_machine() -> "Inventory":
    from ..cluster import machine
    from ..cluster.placement.model import Inventory
    from ..cluster.placement.nodes import inventory_of_processor
    from ..cluster.probes.nvml import can_load_nvml

    found = inventory_of_processor("this machine", machine.cores(), machine.memory_bytes())
    if not can_load_nvml():
        return found
    from ..cluster.survey.known_gpus import known_gpus

    (node,) = found.nodes
    return Inventory((replace(node, devices=(*known_gpus(node.node).devices, *node.devices)),))


def _placed(plan: "Plan", inventory: "Inventory", policy: "Policy", where: str, note: str = "") -> "PlacedPlan":
    from ..cluster.placement.nodes import shared_by_policy
    from ..cluster.placement.rates import start_rates
    from ..jobs.plan.placing import demand_of, place_plan

    shared = shared_by_policy(inventory, policy)
    return place_plan(demand_of(plan), shared, start_rates(), policy, where=where, note=note)
