"""One round of work over a track's ranges on a pool: their results in order, as the board releases them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

from ...actors.device.work import Work
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool
from ...cluster.grouping import counted
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError
from ..request.running import WaitOptions
from ..source.source import SourceStamp
from .board import Board
from .events import Finished, Run
from .loop import BoardLoop, PoolCapacity, ResultT
from .reach import SourceReach
from .threads import in_thread, shielded
from .waiting import WorkerWait
from .watch import WorkWatch


@dataclass(slots=True, kw_only=True)
class FanOut(Generic[ResultT]):
    """One round of work. Used once.

    Args:
        pool: where it runs.
        job: whose it is.
        waits: how long it waits.
        stamp: what the source must stay.
        ship: nodes that do not see it read it through this machine.
        demand: what the whole round asks for; its segments are the ranges.
        work: returns the work of a run.
        end: returns the board's event for a run's result.
        take: gets the results, in order and in a thread.
        frames: returns how many frames a result stands for.
        progress: called a few times a second with how many frames are done.
        may_fall_back: software may decode where a device fails.
    """

    pool: Pool
    job: str
    waits: WaitOptions
    stamp: SourceStamp
    demand: Demand
    work: Callable[[Run], Work[ResultT]]
    end: Callable[[Run, ResultT], Finished]
    take: Callable[[ResultT], None]
    frames: Callable[[ResultT], int]
    progress: Callable[[int], None]
    may_fall_back: bool = True
    ship: bool = False
    frames_done: int = 0
    _losses: list[str] = field(default_factory=list)
    _second_runs: str = ""
    _results: dict[int, ResultT] = field(default_factory=dict)

    async def run(self) -> None:
        """Do all of it.

        Raises:
            CodecfleetError: a range cannot be completed; or of ``take``.
        """
        frames: Sequence[int] = self.demand.segments
        reach = SourceReach(self.pool, self.stamp, self.ship)
        watch = WorkWatch(self.pool, self.waits, bind=reach.bind)
        wait = WorkerWait(self.pool, self.job, self.waits)
        board = BoardLoop(
            Board.of(frames, may_fall_back=self.may_fall_back),
            PoolCapacity(self.pool, self.demand, self.demand.workers_max, wait),
            work=partial(self._work, watch, frames),
            accept=self._accept,
            join=self._join,
            watch=watch,
        )
        async with TaskOwner() as owner:
            owner.start(watch.run(), "watch")
            owner.start(board.report(self._report), "progress")
            await board.run()
        self._second_runs = board.second_runs

    def warnings(self) -> list[str]:
        """Return what was done again, and why."""
        found = [self._second_runs] if self._second_runs else []
        if self._losses:
            runs = counted(len(self._losses), "run")
            found.insert(0, f"{runs} of segments failed and were done again; the last because {self._losses[-1]}")
        return found

    async def _work(self, watch: WorkWatch, frames: Sequence[int], run: Run) -> ResultT:
        try:
            return await watch.submit(self.work(run), sum(frames[run.segment : run.until + 1]))
        except CodecfleetError as error:
            self._losses.append(error.message)
            raise

    async def _accept(self, run: Run, result: ResultT) -> Finished:
        await in_thread(self.stamp.check)
        self._results[run.segment] = result
        return self.end(run, result)

    async def _join(self, board: Board, segment: int) -> None:
        del board
        result = self._results.pop(segment)
        await shielded(self.take, result)
        self.frames_done += self.frames(result)

    async def _report(self, running: Mapping[int, int]) -> None:
        waiting = sum(map(self.frames, self._results.values()))
        self.progress(self.frames_done + waiting + sum(running.values()))
