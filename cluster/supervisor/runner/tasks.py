"""The tasks of a supervisor, in one group: the first that fails ends them all, and is named with its error."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ...ray.ray_words import first_line


class Tasks:
    """A group of tasks: the first that fails is given to ``failed`` with its error, and all others are cancelled."""

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()

    async def open(self) -> None:
        """Begin; tasks may be spawned then."""
        is_open = asyncio.Event()
        self._owner = asyncio.create_task(self._own(is_open), name="tasks of the supervisor")
        await is_open.wait()

    async def _own(self, is_open: asyncio.Event) -> None:
        with suppress(ExceptionGroup):  # ``failed`` was told of the first
            async with asyncio.TaskGroup() as self._group:
                is_open.set()
                await self._closing.wait()
        self._group = None

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task; after the end it is dropped."""
        if self._group is None:
            work.close()
            return
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._group is not None:
            self._group = None
            self._failed(f"{task.get_name()}: {first_line(error)}", error)

    async def close(self, *, awaited: str, grace_s: float) -> None:
        """Cancel all tasks but those of one name, which have ``grace_s`` to end."""
        if self._group is None:
            return
        ending = {task for task in self._tasks if task.get_name() == awaited}
        for task in self._tasks - ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=grace_s)
        for task in ending:
            task.cancel()
        self._closing.set()
        await asyncio.wait({self._owner}, timeout=grace_s)
