"""Carries orders for nodes out, one after the other."""

import asyncio
from collections.abc import Callable
from typing import Final

from ....errors import CodecfleetError
from ...logs.actions import LogAction
from ...logs.writing import log
from ...ray.ray_words import first_line
from ..backends.backend import ClusterBackend
from ..state.events import Resize, Resized, SupervisorEvent
from .leading import Leading

LIMIT_S: Final = 30.0
"""How long an order may take; the next one tries again."""
NOTHING: Final = Resize(())


class Resizing:
    """Has the backend resize its cluster, while the supervisor leads, and feeds back what became of it.

    Of orders that come meanwhile only the newest is carried out.
    """

    def __init__(self, backend: ClusterBackend, leading: Leading, feed: Callable[[SupervisorEvent], None]) -> None:
        self._backend = backend
        self._leading = leading
        self._feed = feed
        self._newest: Resize | None = None
        self._is_busy = False

    async def resize(self, order: Resize) -> None:
        """Carry an order out, or leave that to the call that is busy."""
        self._newest = order
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._newest is not None and await self._leading.leads():
                newest, self._newest = self._newest, None
                self._feed(Resized(await self._trouble_with(newest)))
        finally:
            self._is_busy = False

    async def withdraw(self) -> None:
        """Want no nodes any more: what was asked for would stand for ever."""
        if trouble := await self._trouble_with(NOTHING):
            log(LogAction.NODES_REFUSED, f"the request for nodes could not be withdrawn, and stands: {trouble}")

    async def _trouble_with(self, order: Resize) -> str:
        try:
            await asyncio.wait_for(self._backend.resize(order), LIMIT_S)
        except TimeoutError:
            return f"Ray did not take the order within {LIMIT_S:g} s"
        except CodecfleetError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - any error of Ray's is the answer
            return first_line(error)
        return ""
