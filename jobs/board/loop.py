"""The one loop that carries a board out: it starts runs, feeds their results to the board, and has segments joined."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ...actors.media.seeking import AccessPoint
from ...actors.segment.walk import SegmentTally
from ...cluster.client.pool import Pool
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError
from ..source.index import TrackIndex
from .board import Board, Drop, Event, Fail, Finished, Join, Lost, Run, decide, start_next

WAITING_S = 5.0
"""A job that has had no worker for this long says why."""

ResultT = TypeVar("ResultT")


class Capacity:
    """How many runs there may be at once: here, as many as at first."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once

    def at_once(self, board: Board) -> int:
        """Return how many runs of ``board`` there may be now."""
        del board
        return self._at_once

    async def more(self) -> None:
        """Wait until there may be more than ``at_once`` last said; forever where that never changes.

        Raises:
            CodecfleetError: there is none, and never will be.
        """
        await asyncio.Event().wait()

    async def waiting(self) -> None:
        """Take note that nothing runs, and has not for ``WAITING_S``."""

    def release(self) -> None:
        """Take note that nothing runs any more."""


class PoolCapacity(Capacity):
    """What a pool gives a job: ``workers`` at most, for what is left of the whole job's ``demand``.

    ``on_waiting`` is called with the reason why the job has had no worker for a while.
    """

    def __init__(
        self,
        pool: Pool,
        demand: Demand,
        workers: int | None,
        on_waiting: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(0)
        self._pool = pool
        self._demand = demand
        self._workers = workers
        self._on_waiting = on_waiting

    def at_once(self, board: Board) -> int:
        """Report to the pool what is left, and return how much of it may run."""
        self._pool.set_demand(replace(self._demand, segments=board.frames_left))
        self._at_once = self._pool.slots_for(self._demand.job)
        return min(self._at_once, self._workers or self._at_once)

    async def more(self) -> None:
        """Wait until the pool has more slots for the job."""
        await self._pool.more_slots(self._demand.job, self._at_once)

    async def waiting(self) -> None:
        """Say what the job waits for."""
        if self._on_waiting is not None:
            await self._on_waiting(self._pool.waits_for(self._demand.job))

    def release(self) -> None:
        """Have the pool forget the job."""
        self._pool.clear_demand(self._demand.job)


class BoardLoop(Generic[ResultT]):
    """Runs the segments of one job until all are joined. Used once.

    ``work`` runs a segment; ``accept`` takes the result and returns the event for the board; ``join`` hands segments
    over in order, with the board as it is by then; ``drop``, a streaming board's, lets go of what a run gave.
    """

    def __init__(
        self,
        board: Board,
        capacity: Capacity,
        *,
        work: Callable[[Run], Coroutine[Any, Any, ResultT]],
        accept: Callable[[Run, ResultT], Awaitable[Event]],
        join: Callable[[Board, int], Awaitable[None]],
        drop: Callable[[int], None] | None = None,
    ) -> None:
        self.board = board
        self._capacity = capacity
        self._work = work
        self._accept = accept
        self._join = join
        self._drop = drop
        self._runs: dict[asyncio.Task[ResultT], Run] = {}
        self._posted: deque[Event] = deque()
        self._changed = asyncio.Event()

    @property
    def runs(self) -> tuple[Run, ...]:
        """What runs now."""
        return tuple(self._runs.values())

    def post(self, event: Event) -> None:
        """Give the board an event that is not the end of a run; in the event loop's thread."""
        self._posted.append(event)
        self._changed.set()

    async def run(self) -> None:
        """Run the board.

        Raises:
            CodecfleetError: a segment cannot be completed, or there will never be a worker; or a callback's own.
        """
        try:
            while not self.board.is_done:
                self._start_next()
                for task in await self._ended():
                    # What a run said before it ended comes first.
                    await self._take_posted()
                    await self._take(await self._fact(self._runs.pop(task), task))
                await self._take_posted()
        finally:
            self._capacity.release()
            for task in self._runs:
                task.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)

    def _start_next(self) -> None:
        self.board, runs = start_next(self.board, self._capacity.at_once(self.board))
        for run in runs:
            task = asyncio.create_task(self._work(run))
            task.add_done_callback(self._wake)
            self._runs[task] = run

    async def _ended(self) -> list[asyncio.Task[ResultT]]:
        """Wait until runs have ended, which are returned in the order of their start, or there is room for more."""
        more = asyncio.create_task(self._capacity.more())
        more.add_done_callback(self._wake)
        try:
            async with asyncio.timeout(None if self._runs else WAITING_S):
                await self._changed.wait()
        except TimeoutError:
            await self._capacity.waiting()
        finally:
            self._changed.clear()
            more.cancel()
        if more.done():
            more.result()
        return [task for task in self._runs if task.done()]

    def _wake(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self._changed.set()

    async def _fact(self, run: Run, task: asyncio.Task[ResultT]) -> Event:
        try:
            result = task.result()
        except CodecfleetError as error:
            return Lost(run.segment, error)
        return await self._accept(run, result)

    async def _take_posted(self) -> None:
        while self._posted:
            await self._take(self._posted.popleft())

    async def _take(self, event: Event) -> None:
        self.board, effects = decide(self.board, event)
        for effect in effects:
            match effect:
                case Fail(error):
                    raise error
                case Join(segment):
                    await self._join(self.board, segment)
                case Drop(segment) if self._drop is not None:
                    self._drop(segment)


def finished(run: Run, tally: SegmentTally, entry: AccessPoint | None, index: TrackIndex) -> Finished:
    """Return the event of a run with this ``tally``, decoded from ``entry`` (None: the track's start)."""
    return Finished(
        run.segment,
        run.until,
        tally.seam_before,
        tally.seam_after,
        at_start=entry is None,
        sound=index.is_sound(entry, tally.first_damaged_packet),
    )
