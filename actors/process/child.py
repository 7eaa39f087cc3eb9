"""A child process, seen from the process that started it: called, watched, and ended."""

import asyncio
from contextlib import suppress
from typing import Final, Generic, TypeVar

from ..background import Background
from .channel import Channel
from .forked import keep_from_children
from .messages import Request
from .process import StartedProcess

ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")

_ENDING_S: Final = 1.0
"""How long a process may take to exit after it has closed its end of the channel."""


class ChildDied(ConnectionError):
    """The process is gone, so calls to it get no reply; the message says how it ended."""


class Child(Generic[ServerT]):
    """A process that serves ``ServerT``, from start to end. Used from the event loop in which it is made.

    ``process`` ends with the thread that started it, which must be the current thread. ``serves`` answers the requests
    of the process.
    """

    def __init__(self, process: StartedProcess, serves: object = None) -> None:
        self._process = process
        self._channel: Channel[ServerT] = Channel(process.end, serves, me="the process that started it")
        keep_from_children(process.end)
        self._dead = asyncio.Event()
        self._tasks = Background(lambda _, error: self._channel.over(error))
        self._living = self._tasks.spawn("a child process", self._live())

    async def call(self, request: Request[ServerT, ReplyT]) -> ReplyT:
        """Send a request as ``Channel.call`` does. Raises ChildDied: the process is gone, or dies meanwhile."""
        return await self._channel.call(request)

    def tell(self, request: Request[ServerT, None]) -> None:
        """Send a request without waiting for it; ignored if the process is gone. A failed request ends the process."""
        self._channel.tell(request)

    async def death(self) -> str:
        """Wait until the process is dead; return how it ended."""
        return await asyncio.shield(self._living)

    def kill(self, why: str = "") -> None:
        """Kill the process; ``death`` then returns ``why``, if given."""
        self._channel.trouble = self._channel.trouble or why
        self._process.kill()

    async def end(self) -> None:
        """Kill the process, and wait until it is gone."""
        self.kill()
        await self.death()

    async def _live(self) -> str:
        loop, process = asyncio.get_running_loop(), self._process
        if process.death is not None:
            loop.add_reader(process.death, self._died, process.death)
        try:
            trouble = await self._channel.run()
            if not trouble and process.death is not None:
                with suppress(TimeoutError):  # a process closes its end just before it dies
                    await asyncio.wait_for(self._dead.wait(), _ENDING_S)
        finally:
            if process.death is not None:
                loop.remove_reader(process.death)
            self._channel.close()
            process.kill()
        ended = await asyncio.to_thread(process.ended)
        self._channel.over(ChildDied(trouble or ended))
        return trouble or ended

    def _died(self, death: int) -> None:
        """Read only the messages already sent: children of the process may hold its end of the channel open."""
        asyncio.get_running_loop().remove_reader(death)
        self._dead.set()
        self._channel.hang_up()
