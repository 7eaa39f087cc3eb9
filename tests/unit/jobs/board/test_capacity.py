"""How many runs a job may have at once, and how long it waits for its first worker."""

import asyncio
from fractions import Fraction

import pytest

from codecfleet.cluster.fleet.pool import Asked, JobState, PoolState
from codecfleet.cluster.placement.model import plain_demand
from codecfleet.errors import CodecfleetError, FleetUnavailable, WorkerLost, WorkerOutOfMemory
from codecfleet.jobs.board.board import Board
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import WAITING_S, BoardLoop, PoolCapacity, WorkerWait
from codecfleet.jobs.request.running import WaitOptions
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool


class Losing:
    """Runs of which the first eight are lost with their worker; counts how many run together."""

    def __init__(self, error: CodecfleetError) -> None:
        self.error = error
        self.started = 0
        self.together: list[int] = []
        self.running = 0

    async def work(self, run: Run) -> Run:
        """Be lost if it is among the first runs, otherwise succeed."""
        self.started += 1
        self.running += 1
        is_lost = self.started <= 8
        if not is_lost:
            self.together.append(self.running)
        self.running -= is_lost
        if is_lost:
            raise self.error
        return run

    async def accept(self, run: Run, _result: Run) -> Finished:
        """Take a result."""
        self.running -= 1
        return Finished(run.segment, run.until, (), (), attempt=run.attempt, at_start=True)

    async def join(self, _board: Board, _segment: int) -> None:
        """Take note of nothing."""


async def most_after(error: CodecfleetError) -> int:
    """Return how many of 16 runs on 8 slots ran at once after a worker died with eight of them."""
    losing = Losing(error)
    async with LocalPool(8) as pool:
        spec = TranscodeSpec(source="film.mp4", output="o.mp4")
        capacity = PoolCapacity(pool, plain_demand("j", 16), None, WorkerWait(pool, "j", spec))
        await BoardLoop(Board.of([1] * 16), capacity, work=losing.work, accept=losing.accept, join=losing.join).run()
    return max(losing.together)


async def test_a_worker_out_of_memory_halves_what_runs_at_once() -> None:
    """Eight runs lost with one worker halve the number of concurrent runs only once."""
    assert await most_after(WorkerOutOfMemory("worker n/cpu#0:1 was OOM-killed while running")) == 4


async def test_another_death_changes_nothing() -> None:
    """After a death for another reason, as many runs as before are in flight."""
    assert await most_after(WorkerLost("worker n/cpu#0:1 died while running")) == 8


class FullPool(LocalPool):
    """A pool whose slots other jobs hold for as long as the test wants."""

    slots_now = 0

    @property
    def state(self) -> PoolState:
        """Return the number that the test sets."""
        return PoolState(others=JobState(self.slots_now, waits_for="other jobs have all slots"))


def capacity(pool: FullPool, wait_s: int, said: list[str]) -> PoolCapacity:
    """Return a job's capacity in a pool."""

    async def say(reason: str) -> None:
        said.append(reason)

    wait = WorkerWait(pool, "j", WaitOptions(wait_s=Fraction(wait_s)), say)
    return PoolCapacity(pool, plain_demand("j", 1), None, wait)


def test_a_job_waits_as_long_as_it_may_and_says_for_what() -> None:
    """A job waits as long as it may, and its error names the reason."""
    said: list[str] = []
    waiting = capacity(FullPool(), 10, said)
    asyncio.run(waiting.waiting())
    assert said == ["other jobs have all slots"]
    with pytest.raises(FleetUnavailable, match="no worker for 10 s: other jobs have all slots"):
        asyncio.run(waiting.waiting())


def test_a_worker_ends_the_wait() -> None:
    """The time without a worker counts from the last worker."""
    pool = FullPool()
    waiting = capacity(pool, 10, [])
    for _ in range(5):
        asyncio.run(waiting.waiting())
        pool.slots_now = 1
        assert waiting.at_once(Board.of([1])) == 1
        pool.slots_now = 0
        assert waiting.at_once(Board.of([1])) == 0


def test_a_job_may_wait_without_end() -> None:
    """A job may wait forever, for a cluster that grows on demand."""
    wait = WorkerWait(FullPool(), "j", WaitOptions(wait_s=Fraction(0)))
    asyncio.run(wait.goes_on(1e9))
    asyncio.run(wait.goes_on(WAITING_S))


class AskedPool(LocalPool):
    """A pool that keeps the last demand of each job."""

    asked: Asked | None = None

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Keep the demand."""
        del job
        self.asked = demand


def test_a_held_demand_stays_between_two_boards() -> None:
    """Otherwise the pool would give the job's slots away between two passes, and take them back."""
    pool = AskedPool(1)
    asking = PoolCapacity(pool, plain_demand("j", 1), None, WorkerWait(pool, "j", WaitOptions()))
    with asking.held():
        asking.at_once(Board.of([1]))
        asking.release()
        assert pool.asked is not None
    assert pool.asked is None
