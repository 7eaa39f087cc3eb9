"""How many runs there may be at once: what the pool gives, and less once memory was short."""

from codecfleet.cluster.placement.model import plain_demand
from codecfleet.errors import CodecfleetError, WorkerLost, WorkerOutOfMemory
from codecfleet.jobs.board.board import Board
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import BoardLoop, PoolCapacity
from codecfleet.jobs.board.waiting import WorkerWait
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool


class Losing:
    """Eight runs at once, of which the first eight are lost with their worker; counts how many run together."""

    def __init__(self, error: CodecfleetError) -> None:
        self.error = error
        self.started = 0
        self.together: list[int] = []
        self.running = 0

    async def work(self, run: Run) -> Run:
        """Be lost if it is among the first, else end well."""
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
    """Return how many of 16 runs, on 8 slots, were under way at once after a worker died with eight of them."""
    losing = Losing(error)
    async with LocalPool(8) as pool:
        spec = TranscodeSpec(source="film.mp4", output="o.mp4")
        capacity = PoolCapacity(pool, plain_demand("j", 16), None, WorkerWait(pool, "j", spec))
        await BoardLoop(Board.of([1] * 16), capacity, work=losing.work, accept=losing.accept, join=losing.join).run()
    return max(losing.together)


async def test_a_worker_out_of_memory_halves_what_runs_at_once() -> None:
    """The eight runs that one worker held count once: four run together afterwards, not none."""
    assert await most_after(WorkerOutOfMemory("worker n/cpu#0:1 was killed at work, for want of memory")) == 4


async def test_another_death_changes_nothing() -> None:
    """A worker that died for another reason is replaced, and as many run as before."""
    assert await most_after(WorkerLost("worker n/cpu#0:1 died at work")) == 8
