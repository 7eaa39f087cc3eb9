"""Probes all nodes of the connected cluster at once, for commands that inspect machines and plan work."""

import asyncio
from typing import Any

from ..node.listed import ListedNode, listed_node
from ..placement.model.inventory import Inventory, Node
from ..probes.node.report import NodeReport, SilentNode
from ..ray.private.nodes import draining_nodes
from ..ray.public.nodes import all_nodes
from ..ray.ray_words import first_line
from ..supervisor.backends.ray_backend import live_nodes, recall_orders
from ..supervisor.state.events import Order
from ..supervisor.state.nodes import ORDERED_STATES, Nodes
from ..survey.ray_probe import PROBE_LIMIT_S, probe_ray_node, report_of_ray_node


async def probe_cluster(*, fresh: bool) -> list[NodeReport | SilentNode]:
    """Return each live node's report, or why it has none, sorted by name; ``fresh`` repeats all codec trials."""
    return list(await asyncio.gather(*(_probe(node, fresh=fresh) for node in _alive_nodes())))


async def list_cluster() -> list[tuple[NodeReport | SilentNode, ListedNode]]:
    """Return all live nodes, sorted by name, with their probe reports and Ray's entries."""
    orders, draining, nodes = await recall_orders(), draining_nodes(), _alive_nodes()
    ordered = (ORDERED_STATES[orders.get(node["NodeID"], Order.UNCORDON)] for node in nodes)
    listed = [listed_node(node, draining, state) for node, state in zip(nodes, ordered, strict=True)]
    reports = await asyncio.gather(*(_probe(node, fresh=False) for node in nodes))
    return list(zip(reports, listed, strict=True))


def _alive_nodes() -> list[dict[str, Any]]:
    return sorted((n for n in all_nodes() if n["Alive"]), key=lambda n: (n["NodeManagerHostname"], n["NodeID"]))


async def _probe(node: dict[str, Any], *, fresh: bool) -> NodeReport | SilentNode:
    try:
        return await asyncio.wait_for(report_of_ray_node(node["NodeID"], fresh=fresh), PROBE_LIMIT_S)
    except TimeoutError:
        return SilentNode(node["NodeManagerHostname"], f"no report within {PROBE_LIMIT_S:g} s")
    except Exception as error:  # noqa: BLE001 - after any error of Ray, the node has no report
        return SilentNode(node["NodeManagerHostname"], first_line(error))


async def survey_cluster() -> Inventory:
    """Return the inventory that the cluster's supervisor would use, without asking the supervisor.

    If a node has no report, only its CPU counts. The inventory respects Ray's limits on cores and GPUs, and users'
    orders (cordon, drain).
    """
    nodes = Nodes()
    nodes.see(live_nodes())
    for node, order in (await recall_orders()).items():
        if (ordered := nodes.get(node)) is not None:
            ordered.order = order
    seen = tuple(nodes)
    probes = (asyncio.wait_for(probe_ray_node(each.ray.node, again=False), PROBE_LIMIT_S) for each in seen)
    for each, found in zip(seen, await asyncio.gather(*probes, return_exceptions=True), strict=True):
        if isinstance(found, Node):
            each.report(found)
    return Inventory(tuple(each.node for each in seen))
