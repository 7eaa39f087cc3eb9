"""What a Ray cluster would give a job right now: every node as its probes and Ray itself see it."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..placement.model.inventory import Inventory
from ..ray.embedded import connect

if TYPE_CHECKING:
    from ..supervisor.state.nodes import NodeBook

__all__ = ["survey_cluster"]


async def survey_cluster(address: str) -> Inventory:
    """Return the inventory that the cluster's supervisor would place on, without asking it.

    A node that gives no report counts with its processor alone. Ray says how many of a node's cores and GPUs are for
    Ray, and users' orders (cordon, drain) hold.

    Raises:
        UsageError: the address is of another kind.
        FleetUnavailable: the cluster does not answer.
    """
    connection = await connect(address)
    try:
        # Only now: the environment that Ray reads at import is settled.
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

    with suppress(Exception):  # a node that gives no report has its processor
        book.report(await asyncio.wait_for(probe_ray_node(book.ray.node, again=False), PROBE_LIMIT_S))
