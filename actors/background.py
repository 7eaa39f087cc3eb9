"""Runs the background tasks of an object, and reports each task's error."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import Cancelled
from .task_owner import consume_exception

ResultT = TypeVar("ResultT")


def settle(future: Future[ResultT], call: Callable[[], ResultT]) -> None:
    """Run ``call`` in this thread, and set the result or the error of ``future``."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
        future.set_exception(error)


class Background:
    """The background tasks of one object.

    Inside one function, ``actors.task_owner`` is simpler. ``on_death`` gets the name and the error of each task that
    fails, and must end the object. The other tasks go on until ``stop`` or ``end``, because callers may still wait for
    them.
    """

    def __init__(self, on_death: Callable[[str, BaseException], None]) -> None:
        self._on_death = on_death
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def spawn(self, name: str, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        """Start ``work`` in a background task; after ``stop`` or ``end``, a new task is cancelled before it begins."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._is_over:
            task.cancel()
        return task

    def stop(self) -> None:
        """Cancel all tasks without waiting; no new task starts."""
        self._is_over = True
        for task in self._tasks:
            task.cancel()

    async def end(self, *, awaited: str = "", grace_s: float | None = None) -> None:
        """Cancel all tasks, and wait up to ``grace_s`` seconds for them to end; None waits without a limit.

        Tasks with the name ``awaited`` first get ``grace_s`` to end on their own, and are cancelled afterwards.
        """
        last = {task for task in self._tasks if task.get_name() == awaited}
        for task in self._tasks - last:
            task.cancel()
        if last:
            await asyncio.wait(last, timeout=grace_s)
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(task.get_name(), error)


class SharedCall:
    """A call that several callers await; when one caller is cancelled, the call goes on for the others."""

    def __init__(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._task = asyncio.create_task(work, name=name)
        self._task.add_done_callback(consume_exception)

    async def wait(self) -> None:
        """Wait until the call has ended; raise its error, or ``Cancelled`` if ``cancel`` ended it."""
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Cancelled(f"{self._task.get_name()} was cancelled") from None

    async def cancel(self) -> None:
        """Cancel the call for all its callers."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
