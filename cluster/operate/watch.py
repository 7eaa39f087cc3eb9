"""A fleet's status: once, or again and again."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from ...errors import FleetUnavailable
from ..supervisor.status.status import Status
from .desk import fleet_desk

Seen: TypeAlias = Status | FleetUnavailable | None
"""A fleet's status; why there is none now; or None where there is no supervisor."""


async def fleet_status(address: str | None) -> Status | None:
    """Return a fleet's status; None if it has no supervisor, because no job used it lately.

    Raises:
        UsageError: no cluster is named, and no warm fleet is up.
        FleetUnavailable: the fleet cannot be reached, or its supervisor does not answer.
    """
    async with fleet_desk(address) as ask:
        status: Status | None = await ask("status")
        return status


async def watch_status(address: str | None, show: Callable[[Seen], None], every_s: float) -> None:
    """Show a fleet's status repeatedly over one connection, until cancelled.

    A head or supervisor that does not answer is shown too: a later call may find it again.

    Raises:
        UsageError: no cluster is named, and no warm fleet is up.
        FleetUnavailable: the fleet cannot be reached at first, or is lost.
    """
    async with fleet_desk(address) as ask:
        while True:
            try:
                show(await ask("status"))
            except FleetUnavailable as error:
                show(error)
            await asyncio.sleep(every_s)
