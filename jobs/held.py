"""Work that a user holds, such as a job. It runs by itself until it ends or is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..errors import Cancelled

ResultT = TypeVar("ResultT")


class Held(Generic[ResultT]):
    """A task owned by the user and not by a ``TaskOwner``; its failure ends nothing else, and ``result`` raises it."""

    def __init__(self, work: Coroutine[Any, Any, ResultT], name: str) -> None:
        self.task = asyncio.create_task(work, name=name)
        self._is_cancelling = False

    def on_end(self, call: Callable[[], object]) -> None:
        """Have ``call`` called once the work has ended."""
        self.task.add_done_callback(lambda _: call())

    async def cancel(self) -> None:
        """Cancel the work, and return when it has ended. Idempotent."""
        # Cancel only once: a second cancellation would interrupt the clean-up of the first.
        if not self._is_cancelling:
            self._is_cancelling = True
            self.task.cancel()
        await asyncio.wait([self.task])

    async def result(self, cancelled: Cancelled) -> ResultT:
        """Wait for the result; raise ``cancelled`` if the work was cancelled. The work survives a cancelled wait."""
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise cancelled from None
            raise
