"""A cluster's status, again and again."""

import asyncio
from collections.abc import Callable

from ...errors import FleetUnavailable
from ..supervisor.status.status import Status
from .desk import REACH, desk_of


async def watch_status(address: str, show: Callable[[Status | FleetUnavailable | None], None], every_s: float) -> None:
    """Show a cluster's status repeatedly over one connection, until cancelled.

    A supervisor that does not answer is shown too: Ray restarts it, and a later call finds it.

    Raises:
        FleetUnavailable: the cluster cannot be reached at first, or is lost.
    """
    async with desk_of(address) as ask:
        await ask(REACH)
        while True:
            try:
                show(await ask("status"))
            except FleetUnavailable as error:
                show(error)
            await asyncio.sleep(every_s)
