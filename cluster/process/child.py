"""A process of ours, seen from the process that started it: called, watched, and ended."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from .channel import Channel
from .forked import keep_from_children
from .messages import Request
from .process import StartedProcess

ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")


_ENDING_S: Final = 1.0
"""How long a process that says no more may take to end by itself."""


class ChildDied(ConnectionError):
    """The process is gone, and what it was asked is lost; says how it ended."""


class Child(Generic[ServerT]):
    """A process that serves ``ServerT``, over its whole life. Used from the one event loop in which it is made.

    Args:
        process: as ``start_program`` returned it. It must have been started in this thread, with which it ends.
        serves: what its own requests are for.
        died: makes the error of calls that its death ends, given how it ended.
    """

    def __init__(
        self, process: StartedProcess, serves: object = None, *, died: Callable[[str], Exception] = ChildDied
    ) -> None:
        self._process = process
        self._error = died
        self._channel: Channel[ServerT] = Channel(process.end, serves, me="the process that started it")
        keep_from_children(process.end)
        self._dead = asyncio.Event()
        self._living = asyncio.create_task(self._live())

    async def call(self, request: Request[ServerT, ReplyT]) -> ReplyT:
        """Have it serve a request, and return its reply; cancelled there if it is cancelled here.

        Raises:
            ChildDied: it is gone, or dies meanwhile.
            CodecfleetError: what the request raised there; ``WorkError`` for its other errors.
        """
        return await self._channel.call(request)

    def tell(self, request: Request[ServerT, None]) -> None:
        """Have it serve a request, without waiting; nothing happens if it is gone. An error there ends it."""
        self._channel.tell(request)

    async def death(self) -> str:
        """Wait for its death; return how it ended."""
        return await asyncio.shield(self._living)

    def kill(self, why: str = "") -> None:
        """Kill it; ``why`` is then how it ended."""
        self._channel.trouble = self._channel.trouble or why
        self._process.kill()

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        await self.death()

    async def _live(self) -> str:
        """Be its channel until it is gone; return how it ended."""
        loop, process = asyncio.get_running_loop(), self._process
        if process.death is not None:
            loop.add_reader(process.death, self._died, process.death)
        try:
            trouble = await self._channel.run()
            if not trouble and process.death is not None:
                with suppress(TimeoutError):  # it closes its end just before it ends
                    await asyncio.wait_for(self._dead.wait(), _ENDING_S)
        finally:
            if process.death is not None:
                loop.remove_reader(process.death)
            self._channel.close()
            process.kill()
        ended = await asyncio.to_thread(process.ended)
        self._channel.over(self._error(trouble or ended))
        return trouble or ended

    def _died(self, death: int) -> None:
        """Read what it sent before, and no more: what it started may hold its end open."""
        asyncio.get_running_loop().remove_reader(death)
        self._dead.set()
        self._channel.hang_up()
