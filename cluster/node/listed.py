"""A live node of a cluster as Ray lists it, with state, resources and labels."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..grouping import counted
from ..placement.labels import DECODES, ENCODES, PREFIX, RESERVED
from ..placement.model.inventory import DeviceState

_HEAD: Final = "node:__internal_head__"  #: The resource by which Ray marks the head (Ray 2.60).
_NODE_LABEL: Final = f"{RESERVED}node-id"
_COUNTED: Final = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """A live node."""

    node: str  # Ray's id of the node
    address: str  # the node's address in the cluster
    is_head: bool
    state: DeviceState  # whether the node takes work
    resources: Mapping[str, float]  # the amount of each resource, under Ray's name; memory is in bytes
    labels: Mapping[str, str]

    @property
    def words(self) -> str:
        """The node in one line, without its id: ``head at 10.0.0.1, open, 16 CPUs and 2 GPUs for Ray; kind=nvenc``."""
        cpus, gpus = (counted(int(self.resources.get(name, 0)), name) for name in ("CPU", "GPU"))
        where = f"{'head' if self.is_head else 'node'} at {self.address}, {self.state.value}"
        return "; ".join([f"{where}, {cpus} and {gpus} for Ray", *label_words(self.labels)])

    def to_json(self) -> dict[str, Any]:
        """Return the node as JSON values."""
        found = {"id": self.node, "address": self.address, "is_head": self.is_head, "state": self.state.value}
        return {**found, "resources": dict(self.resources), "labels": dict(self.labels)}


def label_words(labels: Mapping[str, str]) -> list[str]:
    """Return a list with one string that holds all labels; without labels, an empty list.

    Codecs are grouped: ``kind=nvenc, encodes av1 h264``.
    """
    codecs: dict[str, list[str]] = {}
    others = []
    for key, value in labels.items():
        name = key.removeprefix(PREFIX).removeprefix(RESERVED)
        verb = next((verb for verb in (ENCODES, DECODES) if key.startswith(verb)), "")
        if verb:
            codecs.setdefault(verb.removeprefix(PREFIX).rstrip("-"), []).append(key.removeprefix(verb))
        else:
            others.append(f"{name}={value}")
    words = [*others, *(f"{verb} {' '.join(names)}" for verb, names in codecs.items())]
    return [", ".join(words)] if words else []


def listed_node(ray_node: Mapping[str, Any], draining: Collection[str], ordered: DeviceState) -> ListedNode:
    """Return the node that an entry of Ray's table describes.

    ``draining`` has the ids of the nodes that Ray drains; ``ordered`` is the state that a user has set for this node.
    """
    resources: Mapping[str, float] = ray_node["Resources"]
    labels: Mapping[str, str] = ray_node.get("Labels") or {}
    return ListedNode(
        node=ray_node["NodeID"],
        address=ray_node["NodeManagerAddress"],
        is_head=_HEAD in resources,
        state=DeviceState.DRAINING if ray_node["NodeID"] in draining else ordered,
        resources={name: amount for name, amount in sorted(resources.items()) if name in _COUNTED},
        labels={key: value for key, value in sorted(labels.items()) if key != _NODE_LABEL},
    )
