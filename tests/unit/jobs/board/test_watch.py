"""A job's work under watch, on a clock that only the tests advance."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from fractions import Fraction

import pytest

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.errors import DeadlineMissed
from codecfleet.jobs.board.board import Board
from codecfleet.jobs.board.deadlines import Paces
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import BoardLoop, Capacity
from codecfleet.jobs.board.watch import WorkWatch
from codecfleet.jobs.request.running import WaitOptions
from codecfleet.testing import FakeClock, FaultyPool, LocalPool, works
from codecfleet.testing.fake_clock import all_quiet

PATIENCE = WaitOptions(deadline_s=Fraction(5))


@asynccontextmanager
async def watched(pool: FaultyPool, clock: FakeClock, said: list[str]) -> AsyncIterator[WorkWatch]:
    """Give a watch that samples while it is open, and knows the expected speed."""

    async def say(message: str) -> None:
        said.append(message)

    watch = WorkWatch(pool, PATIENCE, start_fps=1000, on_hang=say, clock=clock, sleep=clock.sleep)
    looking = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def test_work_that_hangs_is_written_off() -> None:
    """At the deadline, and not before, the submitter and the user hear that the work hung."""
    clock, said = FakeClock(), list[str]()
    async with (
        FaultyPool(LocalPool(2), hangs={("a", 1)}) as pool,
        watched(pool, clock, said) as watch,
    ):
        task = asyncio.create_task(watch.submit(works.Count(job="j", label="a"), 10))
        await all_quiet()
        await clock.advance(5)
        assert not task.done()
        await clock.advance(2)
        with pytest.raises(DeadlineMissed, match="a made no progress for 5 s"):
            await task
        assert said == ["a made no progress for 5 s: the worker is replaced, and the work runs elsewhere"]
        assert await watch.submit(works.Count(job="j", label="a"), 10) == 1


def loop_over(watch: WorkWatch, segments: int, capacity: Capacity | None = None) -> BoardLoop[int]:
    """Return a board's loop that counts the frames of segments under watch."""

    async def work(run: Run) -> int:
        count = works.Count(job="j", label=run.label, apart_from=run.apart_from)
        return await watch.submit(count, 10)

    async def accept(run: Run, result: int) -> Finished:
        assert result == 1
        after = () if run.until == segments - 1 else (PictureHash(run.until + 1, b""),)
        before = (PictureHash(run.segment, b""),)
        return Finished(run.segment, run.until, before, after, at_start=False, attempt=run.attempt)

    async def join(board: Board, segment: int) -> None:
        del board, segment

    capacity = capacity or Capacity(2)
    return BoardLoop(Board.of([10] * segments), capacity, work=work, accept=accept, join=join, watch=watch)


class Asked(Capacity):
    """A capacity that records each question and its release."""

    def __init__(self) -> None:
        super().__init__(2)
        self.said: list[str] = []

    def at_once(self, board: Board) -> int:
        """Record the question."""
        self.said.append("asked")
        return super().at_once(board)

    def release(self) -> None:
        """Record the release."""
        self.said.append("released")


async def played(loop: BoardLoop[int], clock: FakeClock) -> BoardLoop[int]:
    """Run a loop to its end, and return it."""
    task = asyncio.create_task(loop.run())
    while not task.done():
        await clock.advance(1)
        await asyncio.sleep(0.001)  # the pool has real threads
    await task
    return loop


async def test_a_look_after_the_end_asks_for_nothing() -> None:
    """After the board's end, while the output is joined and proven, a sample demands nothing."""
    clock, capacity = FakeClock(), Asked()
    async with FaultyPool(LocalPool(2)) as pool, watched(pool, clock, []) as watch:
        await played(loop_over(watch, 4, capacity), clock)
        await clock.advance(5)
    assert capacity.said[-1] == "released"


async def test_a_hung_segment_runs_again() -> None:
    """After a hang, only that segment runs once more."""
    clock, said = FakeClock(), list[str]()
    async with FaultyPool(LocalPool(2), hangs={("segment 1", 1)}) as pool, watched(pool, clock, said) as watch:
        loop = await played(loop_over(watch, 4), clock)
    assert [segment.runs for segment in loop.board.segments] == [1, 2, 1, 1]
    assert len(said) == 1


async def test_a_late_segment_runs_a_second_time_and_the_first_is_withdrawn() -> None:
    """Work that stands still while others are fast gets a second run, which ends the job before the deadline."""
    clock, said = FakeClock(), list[str]()
    async with FaultyPool(LocalPool(2), hangs={("segment 1", 1)}) as pool, watched(pool, clock, said) as watch:
        watch.paces = Paces(PATIENCE, 1000, fps_at={"elsewhere": (10.0,)})
        loop = await played(loop_over(watch, 4), clock)
        assert watch.progress() == {}
    assert (loop.board.doubled, loop.board.segments[1].runs, said) == (1, 2, [])
