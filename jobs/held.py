"""Work that a user holds, for example a job. It runs by itself until it ends or is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..errors import Cancelled

ResultT = TypeVar("ResultT")


class Held(Generic[ResultT]):
    """A task that the user, not a ``TaskOwner``, owns. Its failure ends nothing else; ``result`` raises the error."""

    def __init__(self, work: Coroutine[Any, Any, ResultT], name: str) -> None:
        self.task = asyncio.create_task(work, name=name)
        self._is_cancelling = False

    def on_end(self, call: Callable[[], object]) -> None:
        """Call ``call`` once the work has ended."""
        self.task.add_done_callback(lambda _: call())

    async def cancel(self) -> None:
        """Cancel the work, and return when it has ended. Idempotent."""
        # Cancelling a second time would interrupt the clean-up of the first cancellation.
        if not self._is_cancelling:
            self._is_cancelling = True
            self.task.cancel()
        await asyncio.wait([self.task])

    async def result(self, cancelled: Cancelled) -> ResultT:
        """Wait for the result; raise ``cancelled`` if the work was cancelled.

        Cancelling the wait does not cancel the work.
        """
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise cancelled from None
            raise
