"""A supervisor ends with the first of its tasks that fails, with the name and error of that."""

import asyncio

from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

from .test_runner import MakeRunner, clock, make_runner, report, settled, two_nodes

__all__ = ["clock", "make_runner"]


class Defective(FakeClusterBackend):
    """A cluster of which the supervisor makes something that it does not expect."""

    is_defective = False

    def world_is_gone(self) -> str:
        """Fail where a defect of ours would show."""
        if self.is_defective:
            raise ZeroDivisionError("a defect")
        return super().world_is_gone()


async def test_a_task_that_fails_ends_the_supervisor(make_runner: MakeRunner, clock: FakeClock) -> None:
    """Waiting clients are told which, and why; its process is to end, and it can be closed."""
    ended = list[str]()
    backend = Defective(tuple(await two_nodes().look()))
    runner = await make_runner(backend, on_failure=lambda: ended.append(runner.failure))
    held = (await settled(runner, report(1, 50))).slots["j"]
    waiting = asyncio.create_task(runner.renew(report(2, 50, dict(held)), 60))
    await all_quiet()
    backend.is_defective = True
    await clock.advance(0.25)
    said = "the supervisor's task failed: ticks: ZeroDivisionError: a defect"
    assert (ended, (await waiting).unrecoverable) == ([said], said)
