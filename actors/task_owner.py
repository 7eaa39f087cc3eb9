"""A block of code that owns tasks: it fails if one of its tasks fails, and ends its tasks when it ends."""

import asyncio
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from ..errors import CodecfleetError

ResultT = TypeVar("ResultT")


class TaskOwner:
    """A block of code, and the tasks that run beside it: ``async with TaskOwner() as owner``. Not reusable.

    If a task fails, all other tasks and the block are cancelled, and the block raises the task's error. When the block
    ends, the tasks that still run are cancelled. In both cases all tasks have ended when the block is left. If several
    tasks fail, the first ``CodecfleetError`` is raised, or the first error if there is no ``CodecfleetError``.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ending = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        for task in self._tasks:
            task.cancel()
        failed: BaseException | None = None
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as errors:
            failed = _chosen(errors)
        if failed is not None and failed is not error:
            raise failed

    def start(self, work: Coroutine[Any, Any, ResultT], name: str) -> asyncio.Task[ResultT]:
        """Start a task (in the event loop). ``name`` is added to the notes of an error that the task raises."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._is_ending:
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            error.add_note(f"in the task {task.get_name()!r}")


def consume_exception(task: asyncio.Future[Any]) -> None:
    """Mark a task's exception as retrieved; callers that await the task still get it."""
    if not task.cancelled():
        task.exception()


def _chosen(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    flat = list(_flat(errors))
    return next((each for each in flat if isinstance(each, CodecfleetError)), flat[0])


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _flat(inner)
    else:
        yield error
