"""Processes in which work runs alone; in these tests they are threads."""

import asyncio
from typing import Any

import pytest

from codecfleet.actors.device.work import Constraints, Work
from codecfleet.actors.process.process import StartedProcess
from codecfleet.actors.worker.lone_runs import IDLE_S, LONE_MAX, LoneRuns
from codecfleet.errors import Cancelled, CodecfleetError, DeviceLost, ProcessKilled, WorkerLost, WorkError
from codecfleet.testing import works
from codecfleet.testing.fleet.fake_worker import in_thread

from .helper_peers import PATIENCE_S, Unsendable, packed, until

ALONE = Constraints(alone=True)
DWELL = works.Dwell(job="j", label="a", seconds=3600)


class Bench:
    """Lone runs whose processes are threads; ``started`` has the processes, newest last."""

    def __init__(self, device: str = "", *, for_memory: bool = False) -> None:
        self.started: list[StartedProcess] = []
        self.cancelled: set[str] = set()
        self.lone = LoneRuns(device, self._spawn, self.cancelled.__contains__, lambda: for_memory)

    def _spawn(self, slots: int) -> StartedProcess:
        self.started.append(in_thread(slots))
        return self.started[-1]

    @property
    def running(self) -> int:
        """How many pieces of work run."""
        return sum(len(helper.pieces()) for helper in self.lone.helpers)

    async def run(self, work: Work[Any], run: str = "run", constraints: Constraints = ALONE) -> Any:
        """Run work and return its outcome."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.lone.run(run, packed(work), (), constraints)

    async def killed(self, constraints: Constraints = ALONE) -> CodecfleetError:
        """Return the error of work whose process is killed."""
        running = asyncio.create_task(self.run(DWELL, constraints=constraints))
        await until(lambda: self.running > 0)
        self.started[-1].kill()
        outcome = await running
        assert not outcome.spoils_process
        assert isinstance(outcome.error, CodecfleetError)
        return outcome.error


def count(label: str = "a", frames: int = 7) -> works.Count:
    """Return work that succeeds."""
    return works.Count(job="j", label=label, frames=frames)


async def test_a_sound_process_serves_the_next() -> None:
    """One process serves work that comes one after another, even if the work fails by itself."""
    bench = Bench()
    assert (await bench.run(count())).result == 7
    failed = await bench.run(works.RaiseError(job="j", label="a", error=CodecfleetError("no")))
    assert (type(failed.error), failed.spoils_process) == (CodecfleetError, False)
    assert isinstance((await bench.run(Unsendable(job="j", label="a"))).error, WorkError)
    assert (await bench.run(count())).result == 7
    assert len(bench.started) == 1
    assert bench.lone.frames_done == 15


@pytest.mark.parametrize(
    ("device", "constraints", "for_memory", "error"),
    [
        ("", ALONE, False, ProcessKilled),
        ("GPU-1", ALONE, False, DeviceLost),
        ("GPU-1", ALONE, True, ProcessKilled),
        ("GPU-1", Constraints(alone=True, software="it failed"), False, ProcessKilled),
    ],
)
async def test_a_death_is_charged_to_what_was_alone(
    device: str, constraints: Constraints, error: type[CodecfleetError], *, for_memory: bool
) -> None:
    """A death is blamed on the device in use; without one, or if the OOM killer caused the death, on the work."""
    bench = Bench(device, for_memory=for_memory)
    died = await bench.killed(constraints)
    assert (type(died), "OOM-killed" in died.message) == (error, for_memory)
    assert (await bench.run(count())).result == 7


@pytest.mark.parametrize("error", [OSError("no more processes"), TypeError("a path that is none")])
async def test_a_process_that_does_not_start_is_a_lost_worker(error: Exception) -> None:
    """If no process starts, the work is not blamed, and may run elsewhere."""

    def refuses(_: int) -> StartedProcess:
        raise error

    lone = LoneRuns("", refuses, lambda _: False, lambda: False)
    outcome = await lone.run("run", packed(count()), (), ALONE)
    assert type(outcome.error) is WorkerLost
    assert str(error) in str(outcome.error)
    assert lone.helpers == ()


async def test_work_that_was_cancelled_early_does_not_begin() -> None:
    """An order to cancel may come before the process has started."""
    bench = Bench()
    bench.cancelled.add("run")
    assert isinstance((await bench.run(count())).error, Cancelled)


async def test_only_a_few_run_at_once() -> None:
    """Further work waits, because each process takes memory of the device."""
    bench = Bench()
    done = await asyncio.gather(*(bench.run(count(f"{number}"), f"{number}") for number in range(3 * LONE_MAX)))
    assert [outcome.result for outcome in done] == [7] * (3 * LONE_MAX)
    assert len(bench.started) <= LONE_MAX


async def test_work_is_cancelled_while_it_runs_or_waits() -> None:
    """Cancelled work does not wait for room first: a worker with cancelled work that does not end counts as hung."""
    bench = Bench()
    runs = [f"client:{number}" for number in range(LONE_MAX + 2)]
    tasks = [asyncio.create_task(bench.run(DWELL, run)) for run in runs]
    await until(lambda: bench.running == LONE_MAX)
    for waiting in runs[LONE_MAX:]:
        bench.lone.cancel(waiting)
    done = await asyncio.gather(*tasks[LONE_MAX:])
    assert [type(outcome.error) for outcome in done] == [Cancelled] * 2
    assert not any(task.done() for task in tasks[:LONE_MAX])
    for running in runs[:LONE_MAX]:
        bench.lone.cancel(running)
    assert all(isinstance(outcome.error, Cancelled) for outcome in await asyncio.gather(*tasks))
    assert (await bench.run(count())).result == 7


async def test_an_idle_process_goes_after_a_while() -> None:
    """An idle process is kept for later work, but not for long."""
    bench = Bench()
    await bench.run(count())
    for now_s in (100.0, 100.0 + IDLE_S / 2):
        bench.lone.end_idle(now_s)
        assert len(bench.lone.helpers) == 1
    bench.lone.end_idle(100.0 + IDLE_S)
    assert bench.lone.helpers == ()
    assert bench.lone.frames_done == 7
    assert (await bench.run(count())).result == 7
    assert len(bench.started) == 2
