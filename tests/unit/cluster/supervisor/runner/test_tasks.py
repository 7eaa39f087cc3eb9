"""A supervisor's tasks live in one group: one that fails ends the supervisor, with its name and error."""

import asyncio

from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.runner.tasks import Tasks
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

from .test_runner import SETTINGS, report, settled, two_nodes


class Defective(FakeClusterBackend):
    """A cluster of which the supervisor makes something that it does not expect."""

    is_defective = False

    def world_is_gone(self) -> str:
        """Fail where a defect of ours would show."""
        if self.is_defective:
            raise ZeroDivisionError("a defect")
        return super().world_is_gone()


async def test_a_task_that_fails_ends_the_supervisor() -> None:
    """Waiting clients are told which, and why; its process is to end, and it can be closed."""
    clock, ended = FakeClock(), list[str]()
    backend = Defective(tuple(await two_nodes().look()))
    core = Core(SETTINGS, Policy(), 1, clock())
    runner = SupervisorRunner(
        backend, core, SETTINGS, clock=clock, sleep=clock.sleep, on_failure=lambda: ended.append(runner.failure)
    )
    await runner.open()
    held = (await settled(runner, report(1, 50))).slots["j"]
    waiting = asyncio.create_task(runner.renew(report(2, 50, dict(held)), 60))
    await all_quiet()
    backend.is_defective = True
    await clock.advance(0.25)
    said = "the supervisor's task failed: ticks: ZeroDivisionError: a defect"
    assert (ended, (await waiting).unrecoverable) == ([said], said)
    await runner.close("the test is over")


async def test_a_task_that_fails_ends_all_others() -> None:
    """Its group is cancelled, and what is spawned later never runs."""
    told = list[tuple[str, str]]()
    tasks, other = Tasks(lambda name, error: told.append((name, str(error)))), asyncio.Event()

    async def fail() -> None:
        raise ValueError("no")

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            other.set()

    await tasks.open()
    tasks.spawn("other", stay())
    await all_quiet()
    tasks.spawn("first", fail())
    await other.wait()
    tasks.spawn("late", fail())
    await tasks.close(awaited="", grace_s=1)
    assert told == [("first: ValueError: no", "no")]


async def test_closing_waits_for_what_stops_workers() -> None:
    """Other tasks are cancelled at once."""
    tasks, may_end, ended = Tasks(lambda *_: None), asyncio.Event(), list[str]()

    async def stop() -> None:
        await may_end.wait()
        ended.append("stop")

    await tasks.open()
    tasks.spawn("stop", stop())
    tasks.spawn("other", stop())
    closing = asyncio.create_task(tasks.close(awaited="stop", grace_s=10))
    await all_quiet()
    assert not closing.done()
    may_end.set()
    await closing
    assert ended == ["stop"]
