"""A cluster's node groups and their limits, read from TOML. configs/autoscale.toml explains the keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ...errors import UsageError
from ..placement.build import inventory_of_fleet
from ..placement.labels import ARCHITECTURE, DECODES, DLAS, ENCODES, RESERVED, labels_of, parse_labels
from ..placement.model.inventory import Node
from ..probes.gpus.hardware import Hardware, load_hardware
from ..simulated.devices import SimulatedFleet, SimulatedNode
from ..simulated.fleet_file import MachineEntry, resolved_machine
from ..toml_file import load_model
from ..worker_names import NodeId

_KIND: Final = "autoscaling file"
_HELP: Final = "configs/autoscale.toml explains the keys of an autoscaling file."
_FOUND: Final = (ENCODES, DECODES, ARCHITECTURE, DLAS)
"""Prefixes of labels whose values the probes of a node determine."""

Seconds = Annotated[float, Field(ge=0, le=7 * 86_400)]
Nodes = Annotated[int, Field(ge=0, le=10_000)]
Price = Annotated[Decimal, Field(ge=0, le=1_000_000)]


class _GroupEntry(MachineEntry):
    """A group's table in the file. Besides its own keys, it has the keys of a machine in a fleet file."""

    name: Annotated[str, Field(min_length=1)]
    labels: Annotated[dict[str, str], Field(min_length=1)]
    processor: str = "x86_64"
    nodes_min: Nodes = 0
    nodes_max: Nodes
    price_per_hour: Price
    start_s: Seconds = 120.0


class _Document(BaseModel):
    """An autoscaling file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    finish_within_s: Annotated[float, Field(ge=60, le=7 * 86_400)] = 1800.0
    idle_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    turn_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    nodes_max: Nodes = 1000
    price_per_hour_max: Price | None = None
    groups: Annotated[tuple[_GroupEntry, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of equal nodes."""

    name: str
    labels: Mapping[str, str]  # a node with all these labels belongs to the group
    resources: Mapping[str, float]  # the resources of one node, as Ray counts them
    node: Node  # a machine that represents each node of the group
    nodes_max: int
    price_per_hour: Decimal  # the price of one node
    nodes_min: int = 0
    start_s: float = 120.0  # time from the request for a node until it takes work
    limit: str = ""  # why ``nodes_max`` is lower than in the file; "" if it is not lower

    @property
    def price_per_s(self) -> float:
        """The price of one node per second."""
        return float(self.price_per_hour) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleConfig:
    """All groups, and the limits for all groups together."""

    groups: tuple[Group, ...]
    finish_within_s: float = 1800.0  # how soon a job without a due time should end
    idle_s: float = 300.0  # how long a node must be idle before it may be ended
    turn_s: float = 300.0  # the least time between a group's growth and its shrinking, in either order
    nodes_max: int = 1000
    price_per_hour_max: Decimal | None = None  # the most for all nodes together; None for no limit

    def group_of(self, labels: Mapping[str, str]) -> Group | None:
        """Return the group of a node with these labels; None if the node belongs to no group."""
        return next((group for group in self.groups if group.labels.items() <= labels.items()), None)


def nodes_of(group: Group, count: int) -> tuple[Node, ...]:
    """Return ``count`` nodes of a group, with distinct device names."""
    return tuple(_numbered(group.node, NodeId(f"{group.name}-{number}")) for number in range(1, count + 1))


def _numbered(node: Node, name: NodeId) -> Node:
    devices = (replace(each, device=each.device.replace(node.node, name, 1), node=name) for each in node.devices)
    apart = tuple(each if each.kind.is_processor else replace(each, device=f"{name}/{each.device}") for each in devices)
    return replace(node, node=name, name=name, devices=apart)


def load_autoscale(path: str | Path) -> AutoscaleConfig:
    """Return the configuration in an autoscaling file.

    Raises UsageError: the file cannot be read, a key or value is invalid, or a group's labels are ambiguous or
    impossible.
    """
    file = load_model(_KIND, path, _Document, missing="Check the path.", wrong=_HELP, parse_float=str)
    tables = load_hardware()
    groups = tuple(_group(entry, f"the {_KIND} {path}: group {entry.name}", tables) for entry in file.groups)
    _check_apart(groups, path)
    _check_limits(groups, file, path)
    return AutoscaleConfig(groups=groups, **file.model_dump(exclude={"groups"}))


def _group(entry: _GroupEntry, where: str, hardware: Hardware) -> Group:
    machine = resolved_machine(entry.name, entry, where=where, hardware=hardware)
    fleet = SimulatedFleet(name=entry.name, description="", source="", nodes=(machine,))
    (node,) = inventory_of_fleet(fleet).nodes
    _check_labels(entry.labels, node, where)
    if entry.nodes_min > entry.nodes_max:
        raise UsageError(f"{where} has nodes_min {entry.nodes_min} above nodes_max {entry.nodes_max}", _HELP)
    if machine.devices[:-1] and not entry.driver:
        raise UsageError(
            f"{where} has GPUs but no driver", 'Add the driver branch of the machine image, such as driver = "580".'
        )
    return Group(
        name=entry.name,
        labels=entry.labels,
        resources=dict(_resources(machine)),
        node=node,
        nodes_max=entry.nodes_max,
        price_per_hour=entry.price_per_hour,
        nodes_min=entry.nodes_min,
        start_s=entry.start_s,
    )


def _resources(machine: SimulatedNode) -> Iterator[tuple[str, float]]:
    """Yield a machine's resources for Ray: the cores, and one GPU for each GPU, slice or vGPU."""
    yield "CPU", float(machine.cores)
    gpus = [device for device in machine.devices if not device.kind.is_processor]
    count = sum(len(device.slices) if device.mig_enabled else 1 for device in gpus)
    if count:
        yield "GPU", float(count)


def _check_labels(labels: Mapping[str, str], node: Node, where: str) -> None:
    """Refuse labels that Ray does not accept, and labels of codecfleet that the group's nodes would not get."""
    own = dict(labels_of(node, {device.device for device in node.devices}))
    for key, value in labels.items():
        if not key.startswith(RESERVED):
            parse_labels([f"{key}={value}"])
        if own.get(key, "" if key.startswith(_FOUND) else value) != value:
            has = f"has {own[key]}" if key in own else "has none"
            raise UsageError(f"{where}: its label {key} is {value}, but such a machine {has}", _HELP)


def _check_apart(groups: tuple[Group, ...], path: str | Path) -> None:
    """Refuse two groups with the same name, or whose labels do not exclude each other."""
    names = [group.name for group in groups]
    for number, group in enumerate(groups):
        if names.index(group.name) < number:
            raise UsageError(f"the {_KIND} {path} has two groups called {group.name}", "Give each a unique name.")
        for other in groups[:number]:
            shared = group.labels.keys() & other.labels.keys()
            if all(group.labels[key] == other.labels[key] for key in shared):
                message = f"the {_KIND} {path}: a node of {other.name} could count as one of {group.name}"
                raise UsageError(message, "Give the two groups, and their nodes, different values of one label.")


def _check_limits(groups: tuple[Group, ...], file: _Document, path: str | Path) -> None:
    """Refuse groups if the sum of ``nodes_min`` exceeds the limits."""
    least = sum(group.nodes_min for group in groups)
    price = sum(group.nodes_min * group.price_per_hour for group in groups)
    what = f"the {_KIND} {path}: the groups' nodes_min"
    if least > file.nodes_max:
        raise UsageError(f"{what} add up to {least}, but nodes_max is {file.nodes_max}", _HELP)
    if file.price_per_hour_max is not None and price > file.price_per_hour_max:
        raise UsageError(f"{what} cost {price} an hour, but price_per_hour_max is {file.price_per_hour_max}", _HELP)
