"""Probes a node of a Ray cluster with the code of ``codecfleet doctor``, in a task on that node."""

from dataclasses import replace
from typing import NamedTuple

from ..placement.build import node_of_report
from ..placement.model.inventory import Node
from ..probes.node.probe import probe_node
from ..probes.node.report import NodeReport, pack, unpack
from ..ray.keeper import keeper_name
from ..ray.private.nodes import cuda_visible_to_node
from ..ray.public.nodes import run_on_node
from ..worker_names import NodeId

PROBE_LIMIT_S = 150.0
"""How long the task may take, including the start of a process on a cold node and its imports."""
OWN_LIMIT_S = 100.0
"""How long the probes may take, not counting the start of their task."""


class _Probed(NamedTuple):
    report: bytes
    cuda_visible: str | None
    keeper: str


def _probe_here(fresh: bool) -> _Probed:  # noqa: FBT001 - the only argument of a Ray task
    return _Probed(pack(probe_node(fresh=fresh, limit_s=OWN_LIMIT_S)), cuda_visible_to_node(), keeper_name())


async def report_of_ray_node(node: NodeId, *, fresh: bool) -> NodeReport:
    """Return the report of the node with this Ray id; Ray's errors are raised unchanged."""
    return unpack((await run_on_node(node, _probe_here, fresh)).report)


async def probe_ray_node(node: NodeId, *, again: bool, called: NodeId | None = None) -> Node:
    """Probe a node for the inventory; there the node has the id ``called``, or its Ray id if ``called`` is None."""
    found = await run_on_node(node, _probe_here, again)
    probed = node_of_report(unpack(found.report), node=called or node, cuda_visible=found.cuda_visible)
    return replace(probed, keeper=found.keeper)
