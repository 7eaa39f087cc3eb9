"""The inventory of a Ray cluster right now, from its probes and from Ray."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..placement.model.inventory import Inventory
from ..ray.embedded import connect

if TYPE_CHECKING:
    from ..supervisor.state.nodes import NodeBook


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
        from ..supervisor.runner.ray_backend import live_nodes, recall_orders  # noqa: PLC0415
        from ..supervisor.state.nodes import Nodes  # noqa: PLC0415

        nodes = Nodes()
        nodes.see(live_nodes())
        for node, order in (await recall_orders()).items():
            book = nodes.get(node)
            if book is not None:
                book.order = order
        await asyncio.gather(*(_probe(book) for book in nodes))
        return Inventory(tuple(book.node for book in nodes))
    finally:
        await connection.close()


async def _probe(book: "NodeBook") -> None:
    from ..survey.ray_probe import PROBE_LIMIT_S, probe_ray_node  # noqa: PLC0415

    with suppress(Exception):  # a node without a report counts with its CPU
        book.report(await asyncio.wait_for(probe_ray_node(book.ray.node, again=False), PROBE_LIMIT_S))
