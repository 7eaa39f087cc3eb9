"""The policy of a cluster's owner: a frozen value with documented defaults, read from TOML.

``configs/policy.toml`` has every key with its default, and explains it.
"""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ...probes.report.engines import MEDIA_ENGINES, Engine
from ...toml_file import load_model
from .inventory import Inventory, Node

ALL_ENGINES = frozenset({*MEDIA_ENGINES, Engine.CPU})

_HELP = "configs/policy.toml explains the keys of a policy."
Part = Annotated[float, Field(gt=0, le=1)]


class PreemptibleUse(StrEnum):
    """Whether work may run on nodes that may be taken away at any moment."""

    FREELY = "freely"  #: work runs there as on any other node
    LAST = "last"  #: work runs there only if no other node has room
    NEVER = "never"


class Policy(BaseModel):
    """The limits of placement. Fractions of memory refer to free memory; cores are hardware threads."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # The share of a GPU that Ray reserves for a worker: above a half, so that no GPU gets two workers; below one, so
    # that other work finds room.
    gpu_share: Part = 0.51
    # A vGPU's share of the GPU's engines. If 0, the host's report determines the share or, if the host is not in the
    # cluster, the vGPU's type.
    vgpu_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    engines: frozenset[Engine] = ALL_ENGINES  # the engines that may be used
    preemptible: PreemptibleUse = PreemptibleUse.LAST
    sessions_per_core: Annotated[float, Field(gt=0, le=4)] = 1.0  # software sessions for each core
    cores_reserved: Annotated[float, Field(ge=0)] = 0.0  # cores left free on every node
    feeding_cores: Annotated[float, Field(ge=0, le=1)] = 0.1  # cores for each session that a GPU decodes and encodes
    sessions_per_device: Annotated[int, Field(ge=1)] = 64  # the most sessions on one GPU or slice
    memory_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1  # the fraction of device and host memory left free
    # A GPU decodes for the cores only if that makes a session faster by at least this fraction; smaller gains are
    # within the error of the rates.
    hybrid_gain: Annotated[float, Field(ge=0)] = 0.1
    # How long a GPU's worker takes to start. A job for which the GPU only decodes must save more time than this.
    gpu_start_s: Annotated[float, Field(ge=0)] = 4.0
    # The largest weight of a job; its inverse is the smallest weight.
    weight_most: Annotated[int, Field(ge=1)] = 100


def load_policy(path: str | Path) -> Policy:
    """Return the policy in a TOML file. Raises UsageError: the file cannot be read, or has an invalid key or value."""
    return load_model("policy", path, Policy, missing="Check the path.", wrong=_HELP)


def with_policy(node: Node, policy: Policy) -> Node:
    """Give each of a node's vGPUs the policy's share; return the node unchanged if the policy sets no share."""
    if policy.vgpu_share == 0:
        return node
    devices = (
        replace(device, share=policy.vgpu_share, share_unknown="") if device.kind.is_guest else device
        for device in node.devices
    )
    return replace(node, devices=tuple(devices))


def shared_by_policy(inventory: Inventory, policy: Policy) -> Inventory:
    """Apply ``with_policy`` to every node of an inventory."""
    return Inventory(tuple(with_policy(node, policy) for node in inventory.nodes))
