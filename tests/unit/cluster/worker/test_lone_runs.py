"""Processes in which work runs alone, here in threads."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from codecfleet.actors.device.work import Constraints, Work
from codecfleet.cluster.process.process import StartedProcess
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.lone_runs import IDLE_S, LONE_MAX, LoneRuns
from codecfleet.errors import Cancelled, CodecfleetError, DeviceLost, ProcessKilled, WorkerLost
from codecfleet.testing import works
from codecfleet.testing.fleet.fake_worker import in_thread

ALONE = Constraints(alone=True)
PATIENCE_S = 20.0


class Bench:
    """Lone runs whose processes are threads; ``started`` are those, newest last."""

    def __init__(self, device: str = "", *, for_memory: bool = False) -> None:
        self.started: list[StartedProcess] = []
        self.cancelled: set[str] = set()
        self.lone = LoneRuns(device, self._spawn, self.cancelled.__contains__, lambda: for_memory)

    def _spawn(self, slots: int) -> StartedProcess:
        self.started.append(in_thread(slots))
        return self.started[-1]

    async def run(self, work: Work[Any], run: str = "run", constraints: Constraints = ALONE) -> Any:
        """Run work and return its outcome."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.lone.run(run, BlobCache(bytes).pack(work)[0], (), constraints)


def count(label: str = "a", frames: int = 7) -> works.Count:
    """Return work that succeeds."""
    return works.Count(job="j", label=label, frames=frames)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for another thread, which sends no event."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)


def test_a_sound_process_serves_the_next() -> None:
    """One process is enough for work that comes one after the other, also when it fails by itself."""
    bench = Bench()

    async def several() -> None:
        assert (await bench.run(count())).result == 7
        failed = await bench.run(works.RaiseError(job="j", label="a", error=CodecfleetError("no")))
        assert (type(failed.error), failed.spoils_process) == (CodecfleetError, False)
        assert (await bench.run(count())).result == 7

    asyncio.run(several())
    assert len(bench.started) == 1
    assert bench.lone.frames_done == 15


def test_a_spoilt_process_is_replaced_and_its_worker_is_not() -> None:
    """Whose device failed is gone with its process; the worker is told nothing of it."""
    bench = Bench("GPU-1")

    async def several() -> None:
        lost = await bench.run(works.RaiseError(job="j", label="a", error=DeviceLost("gone")))
        assert (type(lost.error), lost.spoils_process) == (DeviceLost, False)
        assert (await bench.run(count())).result == 7

    asyncio.run(several())
    assert len(bench.started) == 2
    assert bench.lone.frames_done == 8, "the frames of the ended one still count"


@pytest.mark.parametrize(
    ("device", "constraints", "error"),
    [
        ("", ALONE, ProcessKilled),
        ("GPU-1", ALONE, DeviceLost),
        ("GPU-1", Constraints(alone=True, software="it failed"), ProcessKilled),
    ],
)
def test_a_death_is_charged_to_what_was_alone(
    device: str, constraints: Constraints, error: type[CodecfleetError]
) -> None:
    """The device is blamed where it was in use, else the work; and the outcome comes at once."""
    bench = Bench(device)

    async def dies() -> None:
        running = asyncio.create_task(bench.run(works.Dwell(job="j", label="a", seconds=60), constraints=constraints))
        await until(lambda: any(state.running for state in bench.lone.states))
        assert bench.lone.states[0].progress.keys() == {"j"}
        bench.started[0].kill()
        outcome = await running
        assert type(outcome.error) is error
        assert not outcome.spoils_process
        assert (await bench.run(count())).result == 7

    asyncio.run(dies())


def test_a_kill_for_memory_is_no_fault_of_the_device() -> None:
    """The kernel ended the process for memory: the error says so, and blames no GPU."""
    bench = Bench("GPU-1", for_memory=True)

    async def dies() -> None:
        running = asyncio.create_task(bench.run(works.Dwell(job="j", label="a", seconds=60)))
        await until(lambda: any(state.running for state in bench.lone.states))
        bench.started[0].kill()
        error = (await running).error
        assert type(error) is ProcessKilled
        assert "for want of memory" in error.message

    asyncio.run(dies())


def test_a_process_that_does_not_start_is_a_lost_worker() -> None:
    """The work is not to blame, and may try elsewhere."""

    def refuses(_: int) -> StartedProcess:
        raise OSError("no more processes")

    lone = LoneRuns("", refuses, lambda _: False)
    outcome = asyncio.run(lone.run("run", BlobCache(bytes).pack(count())[0], (), ALONE))
    assert type(outcome.error) is WorkerLost
    assert "no more processes" in str(outcome.error)


def test_work_that_was_cancelled_early_does_not_begin() -> None:
    """An order to cancel may come before the process is up."""
    bench = Bench()
    bench.cancelled.add("run")
    assert isinstance(asyncio.run(bench.run(count())).error, Cancelled)


def test_running_work_is_cancelled_by_name_or_client() -> None:
    """Both kinds of order reach the process."""
    bench = Bench()

    async def cancelled(order: Callable[[], None]) -> None:
        running = asyncio.create_task(bench.run(works.Dwell(job="j", label="a", seconds=60), "client:7"))
        await until(lambda: any(state.running for state in bench.lone.states))
        order()
        assert isinstance((await running).error, Cancelled)

    asyncio.run(cancelled(lambda: bench.lone.cancel("client:7")))
    asyncio.run(cancelled(lambda: bench.lone.cancel_all("client:")))


def test_only_a_few_run_at_once() -> None:
    """More wait for their turn: each process takes memory of the device."""
    bench = Bench()

    async def many() -> None:
        done = await asyncio.gather(*(bench.run(count(f"{number}"), f"{number}") for number in range(3 * LONE_MAX)))
        assert [outcome.result for outcome in done] == [7] * (3 * LONE_MAX)

    asyncio.run(many())
    assert len(bench.started) <= LONE_MAX


def test_work_that_is_cancelled_while_it_waits_ends_at_once() -> None:
    """It does not wait for room first: a worker whose cancelled work does not end counts as hung."""
    bench = Bench()
    runs = [f"client:{number}" for number in range(LONE_MAX + 2)]

    async def many() -> None:
        tasks = [asyncio.create_task(bench.run(works.Dwell(job="j", label=run, seconds=60), run)) for run in runs]
        await until(lambda: sum(len(state.running) for state in bench.lone.states) == LONE_MAX)
        for waiting in runs[LONE_MAX:]:
            bench.lone.cancel(waiting)
        done = await asyncio.gather(*tasks[LONE_MAX:])
        assert [type(outcome.error) for outcome in done] == [Cancelled] * 2
        assert not any(task.done() for task in tasks[:LONE_MAX])
        bench.lone.cancel_all("client:")
        await asyncio.gather(*tasks)
        assert (await bench.run(count())).result == 7

    asyncio.run(many())


def test_an_idle_process_goes_after_a_while() -> None:
    """It is kept for what may come next, and not for long."""
    bench = Bench()
    asyncio.run(bench.run(count()))
    before = threading.active_count()
    for now_s in (100.0, 100.0 + IDLE_S / 2):
        bench.lone.look(now_s)
        assert len(bench.lone.states) == 1
    bench.lone.look(100.0 + IDLE_S)
    assert bench.lone.states == ()
    assert bench.lone.frames_done == 7
    assert (asyncio.run(bench.run(count()))).result == 7
    assert len(bench.started) == 2
    assert threading.active_count() <= before + 4
