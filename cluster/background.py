"""Background tasks of an object that is started and closed: none of them dies unheard."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..actors.task_owner import consume_exception
from ..errors import Cancelled


class Background:
    """The background tasks of one object, which ends with the first of them that fails.

    Within one function ``actors.task_owner`` is simpler.

    Args:
        on_death: called with the name and the error of a task that failed; the object is then to end.
    """

    def __init__(self, on_death: Callable[[str, BaseException], None]) -> None:
        self._on_death = on_death
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run ``work`` beside."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def end(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(task.get_name(), error)


class SharedCall:
    """A call that several callers await, and that goes on where one of them is cancelled."""

    def __init__(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._task = asyncio.create_task(work, name=name)
        self._task.add_done_callback(consume_exception)

    async def wait(self) -> None:
        """Wait until it has ended.

        Raises:
            Cancelled: it was ended by ``cancel``.
            Exception: its own.
        """
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Cancelled(f"{self._task.get_name()} was cancelled") from None

    async def cancel(self) -> None:
        """Cancel it for all its callers."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
