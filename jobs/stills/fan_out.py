"""Ranges of a track over the workers of a pool, and what comes of each in order."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic

from ...actors.stills.work import PictureWork, SeenT
from ...cluster.client.pool import Pool
from ...cluster.grouping import counted
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError
from ..board.board import Board
from ..board.events import Finished, Run
from ..board.loop import BoardLoop, PoolCapacity, finished
from ..board.threads import in_thread, shielded
from ..board.waiting import WorkerWait
from ..board.watch import WorkWatch
from ..request.parts import WaitOptions
from ..source.index import TrackIndex
from ..source.source import SourceStamp

PROGRESS_INTERVAL_S = 0.25


@dataclass(slots=True)
class DecodeCounts:
    """What was met so far. ``decoded_by`` counts ranges by decoder; ``fallbacks`` says why not by a GPU."""

    frames: int = 0
    damaged: int = 0
    decoded_by: Counter[str] = field(default_factory=Counter)
    fallbacks: set[str] = field(default_factory=set)
    losses: list[str] = field(default_factory=list)
    second_runs: list[str] = field(default_factory=list)

    def warnings(self) -> list[str]:
        """Return what the user should know of it."""
        found = []
        if self.losses:
            runs = counted(len(self.losses), "run")
            found.append(f"{runs} of ranges failed and were done again; the last because {self.losses[-1]}")
        found += self.second_runs
        if self.damaged:
            found.append(f"{counted(self.damaged, 'range')} met damage; what could be decoded was used")
        return found + [f"software decoded what a GPU could not: {reason}" for reason in sorted(self.fallbacks)]


@dataclass(slots=True, kw_only=True)
class FanOut(Generic[SeenT]):
    """One round of work over ranges of a track. Used once.

    Args:
        pool: where it runs.
        job: whose it is.
        waits: how long it waits.
        index: the track's.
        stamp: what the source must stay.
        demand: what the whole round asks for; its segments are the ranges.
        work: returns the work of a run.
        take: gets the results, in order and in a thread.
        adjoin: the ranges leave nothing out, so that their seams are compared.
        decoded: kept up to date.
        progress: called a few times a second with how many frames of the ranges are done.
    """

    pool: Pool
    job: str
    waits: WaitOptions
    index: TrackIndex
    stamp: SourceStamp
    demand: Demand
    work: Callable[[Run], PictureWork[SeenT]]
    take: Callable[[SeenT], None]
    adjoin: bool
    decoded: DecodeCounts
    progress: Callable[[int], None]
    _results: dict[int, SeenT] = field(default_factory=dict)

    async def run(self) -> None:
        """Do all of it.

        Raises:
            CodecfleetError: a range cannot be completed; or of ``take``.
        """
        frames: Sequence[int] = self.demand.segments
        watch = WorkWatch(self.pool, self.job, self.waits)
        wait = WorkerWait(self.pool, self.job, self.waits)
        board = BoardLoop(
            Board.of(frames),
            PoolCapacity(self.pool, self.demand, self.demand.workers_max, wait),
            work=partial(self._work, watch, frames),
            accept=self._accept,
            join=self._join,
            watch=watch,
        )
        beside = [asyncio.create_task(each) for each in (self._report_progress(board), watch.run())]
        try:
            await board.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        self.decoded.second_runs += [board.second_runs] if board.second_runs else []

    async def _work(self, watch: WorkWatch, frames: Sequence[int], run: Run) -> SeenT:
        try:
            return await watch.submit(self.work(run), sum(frames[run.segment : run.until + 1]))
        except CodecfleetError as error:
            self.decoded.losses.append(error.message)
            raise

    async def _accept(self, run: Run, result: SeenT) -> Finished:
        await in_thread(self.stamp.check_local)
        self._results[run.segment] = result
        end = finished(run, result.tally, self.work(run).decode.entry, self.index)
        if not self.adjoin:
            end = replace(end, seam_before=(), seam_after=())
        return replace(end, sound=end.sound and result.is_complete)

    async def _join(self, board: Board, segment: int) -> None:
        del board
        result = self._results.pop(segment)
        await shielded(self.take, result)
        tally, decoded = result.tally, self.decoded
        decoded.frames += result.frames_decoded
        decoded.damaged += tally.damaged
        decoded.decoded_by[tally.decoded_by] += 1
        decoded.fallbacks |= {tally.fallback} if tally.fallback else set()

    async def _report_progress(self, board: BoardLoop[SeenT]) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            running = board.frames_running(await self.pool.progress(self.job))
            waiting = sum(result.frames_decoded for result in self._results.values())
            self.progress(self.decoded.frames + waiting + sum(running.values()))
