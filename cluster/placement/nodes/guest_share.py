"""Which part of its GPU a vGPU has: by its type, or by the policy.

A vGPU's type is named after its GPU and its frame buffer ("NVIDIA L40S-12Q"), and as many run on a GPU as fit into its
memory, each with an equal part of the engines when all are busy. How many run, and which scheduler the host uses, a
guest cannot ask. (NVIDIA Virtual GPU Software User Guide, "Virtual GPU Types" and "Changing Scheduling Behavior".)
"""

from dataclasses import replace

from ...probes.gpus.hardware import Hardware
from ...probes.report.device_report import DeviceKind
from ..model.inventory import Inventory, Node
from ..model.policy import Policy

SHARE_UNKNOWN = "which part of its GPU this vGPU has is not known, so it is counted as all of it"


def guest_share(name: str, hardware: Hardware) -> float | None:
    """Return the part of its GPU's engines that a vGPU has when all its neighbours are busy; None for unknown types.

    One that has a GPU instance has all of the engines that its guest sees.
    """
    wanted = _plain(name)
    for gpu in hardware.vgpu:
        if any(_plain(each.name) == wanted for each in hardware.vgpu_types_of(gpu, mig_enabled=True)):
            return 1.0
        for each in hardware.vgpu_types_of(gpu, mig_enabled=False):
            if _plain(each.name) == wanted:
                return 1 / each.most
    return None


def _plain(name: str) -> str:
    """Return a type's name without its maker's, which has changed over the years."""
    return name.removeprefix("GRID ").removeprefix("NVIDIA ")


def with_policy(node: Node, policy: Policy) -> Node:
    """Return a node whose vGPUs have the part of their GPU that the policy says, where it says one."""
    if policy.vgpu_share == 0:
        return node
    return replace(
        node,
        devices=tuple(
            replace(device, share=policy.vgpu_share, share_unknown="") if device.kind is DeviceKind.VGPU else device
            for device in node.devices
        ),
    )


def shared_by_policy(inventory: Inventory, policy: Policy) -> Inventory:
    """Return an inventory with ``with_policy`` for every node."""
    return Inventory(tuple(with_policy(node, policy) for node in inventory.nodes))
