"""Probes every node of a Ray cluster at once, for the commands that inspect machines and plan work."""

import asyncio
from typing import Any

from ..node.listed import ListedNode, listed_node
from ..placement.model.inventory import Inventory, Node
from ..probes.node.report import NodeReport, SilentNode
from ..ray.embedded import connect
from ..ray.private.nodes import draining_nodes
from ..ray.public.nodes import all_nodes
from ..ray.ray_words import first_line
from ..supervisor.state.events import Order


async def probe_cluster(address: str, fresh: bool) -> list[NodeReport | SilentNode]:  # noqa: FBT001 - a service's argument
    """Return the reports of all live nodes by name, or the reason for none; ``fresh`` tries every codec again.

    Raises:
        UsageError: the address is of another kind.
        FleetUnavailable: the cluster does not answer.
    """
    connection = await connect(address)
    try:
        return list(await asyncio.gather(*(_probe(node, fresh=fresh) for node in _alive(all_nodes()))))
    finally:
        await connection.close()


async def list_cluster(address: str) -> list[tuple[NodeReport | SilentNode, ListedNode]]:
    """Return all live nodes by name, as they were probed and as Ray knows them.

    Raises:
        UsageError: the address is of another kind.
        FleetUnavailable: the cluster does not answer.
    """
    connection = await connect(address)
    try:
        from ..supervisor.backends.ray_backend import recall_orders  # noqa: PLC0415 - imports Ray
        from ..supervisor.state.nodes import ORDERED_STATES  # noqa: PLC0415 - only this needs it

        orders, draining = await recall_orders(), draining_nodes()
        found = [
            (node, listed_node(node, draining, ORDERED_STATES[orders.get(node["NodeID"], Order.UNCORDON)]))
            for node in _alive(all_nodes())
        ]
        reports = await asyncio.gather(*(_probe(node, fresh=False) for node, _ in found))
        return [(report, listed) for report, (_, listed) in zip(reports, found, strict=True)]
    finally:
        await connection.close()


def _alive(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((n for n in nodes if n["Alive"]), key=lambda n: (n["NodeManagerHostname"], n["NodeID"]))


async def _probe(node: dict[str, Any], *, fresh: bool) -> NodeReport | SilentNode:
    from ..survey.ray_probe import PROBE_LIMIT_S, report_of_ray_node  # noqa: PLC0415 - imports Ray

    try:
        return await asyncio.wait_for(report_of_ray_node(node["NodeID"], fresh=fresh), PROBE_LIMIT_S)
    except TimeoutError:
        return SilentNode(node["NodeManagerHostname"], f"no report within {PROBE_LIMIT_S:g} s")
    except Exception as error:  # noqa: BLE001 - the edge: after any error of Ray's this node has no report
        return SilentNode(node["NodeManagerHostname"], first_line(error))


async def survey_cluster(address: str) -> Inventory:
    """Return the inventory that the cluster's supervisor would place on, without calling it.

    A node without a report counts with its CPU alone. Ray's limits on a node's cores and GPUs apply, and users' orders
    (cordon, drain).

    Raises:
        UsageError: the address is of another kind.
        FleetUnavailable: the cluster does not answer.
    """
    connection = await connect(address)
    try:
        # Imported late: the environment that Ray reads at import is settled now.
        from ..supervisor.backends.ray_backend import live_nodes, recall_orders  # noqa: PLC0415
        from ..supervisor.state.nodes import Nodes  # noqa: PLC0415
        from ..survey.ray_probe import PROBE_LIMIT_S, probe_ray_node  # noqa: PLC0415

        nodes = Nodes()
        nodes.see(live_nodes())
        for node, order in (await recall_orders()).items():
            if (ordered := nodes.get(node)) is not None:
                ordered.order = order
        books = tuple(nodes)
        probes = (asyncio.wait_for(probe_ray_node(book.ray.node, again=False), PROBE_LIMIT_S) for book in books)
        for book, found in zip(books, await asyncio.gather(*probes, return_exceptions=True), strict=True):
            if isinstance(found, Node):
                book.report(found)
        return Inventory(tuple(book.node for book in books))
    finally:
        await connection.close()
