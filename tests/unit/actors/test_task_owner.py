"""Tasks with an owner: no task outlives the owner, and no error of a task is lost."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from codecfleet.actors.task_owner import TaskOwner
from codecfleet.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def forever(ended: list[str] | None = None) -> None:
    """Wait forever; record the cancellation."""
    try:
        await asyncio.Event().wait()
    finally:
        if ended is not None:
            ended.append("ended")


async def fail(error: Exception) -> None:
    """Fail at once."""
    raise error


async def test_tasks_end_with_the_block() -> None:
    """Running tasks have been cancelled and have ended when the block is left; finished tasks keep their results."""
    ended: list[str] = []
    async with TaskOwner() as owner:
        owner.start(forever(ended), "forever")
        done = owner.start(asyncio.sleep(0, "result"), "done")
        assert await done == "result"
    assert ended == ["ended"]


async def test_a_task_that_dies_ends_its_owner_with_its_name_and_error() -> None:
    """The block and the other tasks are cancelled; the task's own error is raised, with a note that names the task."""
    ended: list[str] = []
    error = ValueError("broken")

    async def owned() -> None:
        async with TaskOwner() as owner:
            owner.start(forever(ended), "other")
            owner.start(fail(error), "watch")
            await forever(ended)

    with pytest.raises(ValueError, match="broken") as raised:
        await owned()
    assert raised.value is error
    assert error.__notes__ == ["in the task 'watch'"]
    assert ended == ["ended", "ended"]


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    """The error keeps its cause, and the tasks have ended."""
    ended: list[str] = []

    async def broken() -> None:
        async with TaskOwner() as owner:
            owner.start(forever(ended), "other")
            await asyncio.sleep(0)
            raise StorageFailed("full") from OSError("no space")

    with pytest.raises(StorageFailed, match="full") as raised:
        await broken()
    assert isinstance(raised.value.__cause__, OSError)
    assert ended == ["ended"]


async def test_codecfleets_own_error_comes_first() -> None:
    """Of several errors, the one with a next step is raised."""

    async def owned() -> None:
        async with TaskOwner() as owner:
            owner.start(fail(ValueError("follows")), "first")
            owner.start(fail(StorageFailed("full")), "second")
            await forever()

    with pytest.raises(StorageFailed):
        await owned()


@pytest.mark.parametrize("in_task", [False, True])
async def test_cancelling_the_owner_ends_all(*, in_task: bool) -> None:
    """The owner's cancellation reaches every task, whether the block runs or waits for a task."""
    ended: list[str] = []

    async def owned() -> None:
        async with TaskOwner() as owner:
            task = owner.start(forever(ended), "task")
            waits: Callable[[], Awaitable[None]] = (lambda: task) if in_task else forever
            await waits()

    running = asyncio.ensure_future(owned())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["ended"]
