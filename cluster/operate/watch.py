"""A fleet's status: once, or again and again."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from ...errors import CodecfleetError, FleetUnavailable
from ..fleet.status_messages import ReadStatus, SupervisorSide
from ..logs.actions import LogAction
from ..logs.writing import log
from ..process.child import ChildDied
from ..ray.ray_words import first_line
from ..supervisor.status.status import Status
from .desk import AskDesk, fleet_desk

Seen: TypeAlias = Status | FleetUnavailable | None
"""A fleet's status; why there is none now; or None where there is no supervisor."""


async def fleet_status(address: str | None) -> Status | None:
    """Return a fleet's status; None if it has no supervisor, because no job used it lately.

    Raises:
        UsageError: no cluster is named, and no warm fleet is up.
        FleetUnavailable: the fleet cannot be reached, or its supervisor does not answer.
    """
    async with fleet_desk(address) as ask:
        return await ask(ReadStatus())


async def watch_status(address: str | None, show: Callable[[Seen], None], every_s: float) -> None:
    """Show a fleet's status repeatedly over one connection, until cancelled.

    A look that fails is shown too, whatever its error: the next one may do.

    Raises:
        UsageError: no cluster is named, and no warm fleet is up.
        FleetUnavailable: the fleet cannot be reached at first, or is lost.
    """
    async with fleet_desk(address) as ask:
        while True:
            show(await look(ask))
            await asyncio.sleep(every_s)


async def look(ask: AskDesk[SupervisorSide]) -> Seen:
    """Return a fleet's status, or why it does not answer.

    Raises:
        ChildDied: nothing more can be asked there.
    """
    try:
        return await ask(ReadStatus())
    except ChildDied:
        raise
    except Exception as error:  # noqa: BLE001 - it costs this look alone
        return as_unavailable(error)


def as_unavailable(error: Exception) -> FleetUnavailable:
    """Return an error of a look as why there is nothing to see; what is not one of ours is a defect, and logged."""
    if isinstance(error, FleetUnavailable):
        return error
    if isinstance(error, CodecfleetError):
        return FleetUnavailable(error.message, error.next_step)
    message = f"this look at the fleet failed: {first_line(error)}"
    log(LogAction.DEFECT, message, error=error)
    return FleetUnavailable(message, "This is a defect in codecfleet; the next look may succeed.")
