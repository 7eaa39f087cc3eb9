"""A worker that is a process of ours, seen from the process that started it."""

import asyncio
from typing import Any

from ..worker.heartbeat import WorkerFacts
from .actor_calls import ActorMethod
from .calls import Calls
from .process import StartedProcess
from .wire import WireChannel


class WorkerDied(ConnectionError):
    """The worker's process is gone, and what it ran is lost."""


class WorkerProcess:
    """A worker in a process of ours; its methods are called the way Ray's actors' are. Used from one event loop."""

    def __init__(self, process: StartedProcess) -> None:
        self._process = process
        self._channel = WireChannel(process.end)
        self._calls = Calls(self._channel)
        self._living = asyncio.create_task(self._live())

    def __getattr__(self, method: str) -> ActorMethod:
        return ActorMethod(lambda *arguments: self._ask(method, arguments))

    async def begin(self, slots: int, cores: int) -> WorkerFacts:
        """Have it work, with these numbers of slots and cores; the answer shows that our code is importable in it.

        Raises:
            WorkerDied: it ended before.
        """
        await self._ask("begin", (slots, cores))
        facts: WorkerFacts = await self._ask("facts", ())
        return facts

    async def death(self) -> str:
        """Wait for its death; return why."""
        return await asyncio.shield(self._living)

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        await self.death()

    async def _ask(self, method: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever the method returns
        outcome = await self._calls.ask(method, *arguments)
        if method == "run":
            return outcome
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    async def _live(self) -> str:
        """Take answers until it is gone; return why."""
        writing = asyncio.create_task(self._channel.write())
        unreadable = ""
        try:
            while (message := await self._channel.read()) is not None:
                self._calls.take(message)
        except Exception as error:  # noqa: BLE001 - a worker that cannot be understood is of no use
            unreadable = f"what it said cannot be read: {type(error).__name__}: {error}"
        finally:
            writing.cancel()
            self._channel.close()
            self._process.kill()
        ended = await asyncio.to_thread(self._process.ended)
        self._calls.end(WorkerDied(unreadable or ended))
        return unreadable or ended
