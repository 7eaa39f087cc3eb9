"""A job without any worker."""

import asyncio
from fractions import Fraction

import pytest

from codecfleet.cluster.fleet.pool import JobState, PoolState
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.errors import FleetUnavailable
from codecfleet.jobs.board.board import Board
from codecfleet.jobs.board.loop import PoolCapacity
from codecfleet.jobs.board.waiting import WAITING_S, WorkerWait
from codecfleet.jobs.request.running import WaitOptions
from codecfleet.testing import LocalPool


class FullPool(LocalPool):
    """A pool whose slots others have, for as long as a test wants."""

    slots_now = 0

    @property
    def state(self) -> PoolState:
        """Return what the test says."""
        return PoolState(others=JobState(self.slots_now, waits_for="other jobs have all slots"))


def capacity(pool: FullPool, wait_s: int, said: list[str]) -> PoolCapacity:
    """Return a job's capacity in a pool."""

    async def say(reason: str) -> None:
        said.append(reason)

    wait = WorkerWait(pool, "j", WaitOptions(wait_s=Fraction(wait_s)), say)
    return PoolCapacity(pool, plain_demand("j", 1), None, wait)


def test_a_job_waits_as_long_as_it_may_and_says_for_what() -> None:
    """The reason is in the error too."""
    said: list[str] = []
    waiting = capacity(FullPool(), 10, said)
    asyncio.run(waiting.waiting())
    assert said == ["other jobs have all slots"]
    with pytest.raises(FleetUnavailable, match="no worker for 10 s: other jobs have all slots"):
        asyncio.run(waiting.waiting())


def test_a_worker_ends_the_wait() -> None:
    """What counts is the time since there was one."""
    pool = FullPool()
    waiting = capacity(pool, 10, [])
    for _ in range(5):
        asyncio.run(waiting.waiting())
        pool.slots_now = 1
        assert waiting.at_once(Board.of([1])) == 1
        pool.slots_now = 0
        assert waiting.at_once(Board.of([1])) == 0


def test_a_job_may_wait_without_end() -> None:
    """On a cluster that grows on demand."""
    wait = WorkerWait(FullPool(), "j", WaitOptions(wait_s=Fraction(0)))
    asyncio.run(wait.goes_on(1e9))
    asyncio.run(wait.goes_on(WAITING_S))
