"""Background tasks: failures are reported, and the end waits for tasks that must finish."""

import asyncio

from codecfleet.actors.background import Background
from codecfleet.testing.fake_clock import all_quiet


async def test_each_task_that_fails_is_reported_and_others_go_on() -> None:
    """If a task fails, the others continue, since they may have to wake callers; ``stop`` cancels all."""
    told, ended = list[tuple[str, str]](), list[str]()
    tasks = Background(lambda name, error: told.append((name, str(error))))

    async def fail(why: str) -> None:
        raise ValueError(why)

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stay")

    tasks.spawn("other", stay())
    tasks.spawn("first", fail("no"))
    tasks.spawn("second", fail("never"))
    await all_quiet()
    assert (told, ended) == ([("first", "no"), ("second", "never")], [])
    tasks.stop()
    late = tasks.spawn("late", fail("late"))
    await tasks.end()
    assert (len(told), ended, late.cancelled()) == (2, ["stay"], True)


async def test_the_end_waits_for_tasks_of_one_name() -> None:
    """The end waits for tasks with this name; other tasks are cancelled at once."""
    tasks, may_end, ended = Background(lambda *_: None), asyncio.Event(), list[str]()

    async def stop(name: str) -> None:
        await may_end.wait()
        ended.append(name)

    tasks.spawn("stop", stop("stop"))
    tasks.spawn("other", stop("other"))
    ending = asyncio.create_task(tasks.end(awaited="stop", grace_s=10))
    await all_quiet()
    assert not ending.done()
    may_end.set()
    await ending
    assert ended == ["stop"]
