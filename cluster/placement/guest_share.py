"""Which part of its GPU a vGPU has: by its type, or by the policy.

A vGPU's type is named after its GPU and its frame buffer ("NVIDIA L40S-12Q"), and as many run on a GPU as fit into its
memory, each with an equal part of the engines when all are busy. How many run, and which scheduler the host uses, a
guest cannot ask. (NVIDIA Virtual GPU Software User Guide, "Virtual GPU Types" and "Changing Scheduling Behavior".)
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from ..hardware import Hardware
from ..probes.device_report import DeviceKind
from .inventory import Device, Inventory, Node
from .policy import Policy

__all__ = ["SHARE_UNKNOWN", "guest_share", "shared_by_policy", "with_policy"]

SHARE_UNKNOWN = "which part of its GPU this vGPU has is not known, so it is counted as all of it"
_TYPE = re.compile(r"(?P<board>.+)-(?P<gib>\d+)[ABCQ]")
_MAKERS = ("NVIDIA ", "GRID ", "Tesla ")
_MIB_IN_GIB = 1024


def guest_share(name: str, hardware: Hardware) -> float | None:
    """Return the part of its GPU's engines that a vGPU of this name has when all its neighbours are busy.

    None where the name is no type that shares a GPU by time, or one of a GPU that the tables lack or have in several
    sizes.
    """
    parts = _TYPE.fullmatch(name)
    if parts is None or int(parts["gib"]) == 0:
        return None
    sizes = {model.memory_mib for model in hardware.gpus.values() if _is_board(parts["board"], model.names)}
    if len(sizes) != 1:
        return None
    return 1 / ceil(sizes.pop() / (int(parts["gib"]) * _MIB_IN_GIB))


def _is_board(board: str, names: Iterable[str]) -> bool:
    wanted = _plain(board)
    return any(_plain(name) == wanted or _plain(name.partition("-")[0]) == wanted for name in names)


def _plain(name: str) -> str:
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return name.removesuffix(" Generation").replace(" ", "").replace("-", "").upper()


def with_policy(node: Node, policy: Policy) -> Node:
    """Return a node whose vGPUs have the part of their GPU that the policy says, where it says one."""
    if policy.vgpu_share == 0:
        return node
    return replace(node, devices=tuple(_with_share(device, policy.vgpu_share) for device in node.devices))


def shared_by_policy(inventory: Inventory, policy: Policy) -> Inventory:
    """Return an inventory with ``with_policy`` for every node."""
    return Inventory(tuple(with_policy(node, policy) for node in inventory.nodes))


def _with_share(device: Device, share: float) -> Device:
    return replace(device, share=share, share_unknown="") if device.kind is DeviceKind.VGPU else device
