"""How many more machines with vGPUs the cluster's own hosts have room for.

A group's machine that has a vGPU can only start where a host can make one of its type. Hosts that are nodes of the
cluster say which types can be made now (vGPU Management SDK guide, 2.2); of other hosts nothing is known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..placement.model.inventory import plain_type
from ..probes.report.device_report import DeviceKind
from .config import AutoscaleConfig, Group
from .values import Decision, NodeSeen


def with_vgpu_rooms(
    config: AutoscaleConfig, nodes: Sequence[NodeSeen], last: Decision, rooms: Mapping[str, int] | None
) -> AutoscaleConfig:
    """Return a configuration whose groups of machines with vGPUs have no more nodes than hosts have room for.

    ``rooms`` is how many vGPUs of each type can be made now, None where no host is known. What was asked for already
    stays: a machine may have its vGPU and not yet be a node.
    """
    if rooms is None:
        return config
    return replace(config, groups=tuple(_limited(group, nodes, last, rooms) for group in config.groups))


def _limited(group: Group, nodes: Sequence[NodeSeen], last: Decision, rooms: Mapping[str, int]) -> Group:
    needs = Counter(plain_type(each.name) for each in group.node.devices if each.kind is DeviceKind.VGPU)
    if not needs:
        return group
    name, room = min(((name, rooms.get(name, 0) // count) for name, count in needs.items()), key=lambda each: each[1])
    here = sum(node.group == group.name for node in nodes)
    most = max(last.size(group.name).wanted, here + room)
    if most >= group.nodes_max:
        return group
    return replace(group, nodes_max=max(most, group.nodes_min), limit=f"no host can make another {name} now")
