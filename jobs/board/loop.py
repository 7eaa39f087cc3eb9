"""The one loop that carries a board out: it starts runs, feeds their results to the board, and has segments joined."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ...actors.media.seeking import AccessPoint
from ...actors.segment.walk import SegmentTally
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool, more_slots
from ...cluster.grouping import counted
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError, WorkerOutOfMemory
from ..source.index import TrackIndex
from .board import Board, decide, double, start_next
from .events import Drop, Event, Fail, Finished, Join, Lost, Run, Withdraw
from .starting import cores_for
from .waiting import WAITING_S, WorkerWait
from .watch import WorkWatch

PROGRESS_INTERVAL_S = 0.25
ResultT = TypeVar("ResultT")


class Capacity:
    """How many runs there may be at once: here, as many as at first."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once

    def at_once(self, board: Board) -> int:
        """Return how many runs of ``board`` there may be now."""
        del board
        return self._at_once

    def has_room(self, board: Board) -> bool:
        """Return whether another run may start beside those of ``board`` that run."""
        return self.at_once(board) > board.running

    def cores(self) -> int:
        """Return how many cores all runs together may keep busy."""
        return self._at_once

    async def more(self) -> None:
        """Wait until there may be more than ``at_once`` last said; forever where that never changes.

        Raises:
            CodecfleetError: there is none, and never will be.
        """
        await asyncio.Event().wait()

    async def waiting(self) -> None:
        """Take note that nothing runs, and has not for another ``WAITING_S``.

        Raises:
            CodecfleetError: that has been so for too long.
        """

    def relieve(self, error: WorkerOutOfMemory, running: int) -> None:
        """Take note that a worker ran out of memory while that many runs were under way."""

    def release(self) -> None:
        """Take note that nothing runs any more."""


class PoolCapacity(Capacity):
    """What a pool gives a job: ``workers`` at most, for what is left of the whole job's ``demand``."""

    def __init__(self, pool: Pool, demand: Demand, workers: int | None, wait: WorkerWait) -> None:
        super().__init__(0)
        self._pool = pool
        self._demand = demand
        self._workers = workers
        self._wait = wait
        self._relieved: set[str] = set()

    def at_once(self, board: Board) -> int:
        """Report to the pool what is left, and return how much of it may run."""
        workers_max = self._workers if self._relieved else self._demand.workers_max
        demand = replace(self._demand, segments=board.frames_left, workers_max=workers_max)
        if board.software:
            demand = replace(demand, software_decode=board.software, needs_gpu=False)
        self._pool.set_demand(demand.job, demand)
        self._at_once = self._pool.state.of(demand.job).slots
        if self._at_once:
            self._wait.is_over()
        return min(self._at_once, self._workers or self._at_once)

    def has_room(self, board: Board) -> bool:
        """Return whether a slot is free; with nothing left to start, the pool is asked for an idle one."""
        is_bounded = self._workers is not None and board.running >= self._workers
        return super().has_room(board) or not (board.waits or is_bounded)

    def cores(self) -> int:
        """Return how many the pool lets all runs keep busy."""
        return self._pool.state.of(self._demand.job).cores

    async def more(self) -> None:
        """Wait until the pool has more slots for the job.

        Raises:
            CodecfleetError: it has none, and never will.
        """
        await more_slots(self._pool, self._demand.job, self._at_once)

    async def waiting(self) -> None:
        """Say what the job waits for, and give up where it has waited too long."""
        await self._wait.goes_on(WAITING_S)

    def relieve(self, error: WorkerOutOfMemory, running: int) -> None:
        """Run half as many from now on; once for each worker, which held several, and whose name the message has."""
        if error.message not in self._relieved:
            self._relieved.add(error.message)
            self._workers = max(1, min(running, self._workers or running) // 2)

    def release(self) -> None:
        """Withdraw the job's demand."""
        self._pool.set_demand(self._demand.job, None)


class BoardLoop(Generic[ResultT]):
    """Runs the segments of one job until all are joined. Used once.

    ``work`` runs a segment; ``accept`` takes the result and returns the event for the board; ``join`` hands segments
    over in order, with the board as it is by then; ``drop``, a streaming board's, lets go of what a run gave. What
    ``watch`` finds late runs a second time where slots are free.
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
        watch: WorkWatch | None = None,
    ) -> None:
        self.board = board
        self._capacity = capacity
        self._work = work
        self._accept = accept
        self._join = join
        self._drop = drop
        self._watch = watch
        self._runs: dict[asyncio.Task[ResultT | Lost], Run] = {}
        self._owner = TaskOwner()
        self._posted: deque[Event] = deque()
        self._changed = asyncio.Event()
        self.wasted_frames = 0
        """The frames that withdrawn runs had done."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """What runs now."""
        return tuple(self._runs.values())

    @property
    def second_runs(self) -> str:
        """How much was done twice because its first run was late, in words; "" where nothing was."""
        if not self.board.doubled:
            return ""
        late = counted(self.board.doubled, "late segment")
        return f"{late} ran a second time elsewhere; {counted(self.wasted_frames, 'frame')} done for nothing"

    def post(self, event: Event) -> None:
        """Give the board an event that is not the end of a run; in the event loop's thread."""
        self._posted.append(event)
        self._changed.set()

    async def run(self) -> None:
        """Run the board.

        Raises:
            CodecfleetError: a segment cannot be completed, or there will never be a worker; or a callback's own.
        """
        if self._watch is not None:
            self._watch.on_look = self._look
        async with self._owner:
            try:
                while not self.board.is_done:
                    self._start_next()
                    for task in await self._ended():
                        # What a run said before it ended comes first.
                        await self._take_posted()
                        await self._take_end(self._runs.pop(task), task)
                    await self._take_posted()
            finally:
                if self._watch is not None:
                    # A look after the end would have the pool remember a job that is over.
                    self._watch.on_look = lambda: None
                self._capacity.release()

    async def report(self, progress: Callable[[Mapping[int, int]], Awaitable[None]]) -> None:
        """Call ``progress`` a few times a second with the frames done of each segment that runs, until cancelled."""
        while self._watch is not None:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            by_label, frames = self._watch.progress(), dict[int, int]()
            for run in self.runs:
                frames[run.segment] = max(frames.get(run.segment, 0), by_label.get(run.label, 0))
            await progress(frames)

    def _start_next(self) -> None:
        self._start(start_next(self.board, self._capacity.at_once(self.board)))
        while (doubled := self._doubled())[1]:
            self._start(doubled)

    def _doubled(self) -> tuple[Board, list[Run]]:
        """Return the board with a second run of what is latest, where there is room for one."""
        watch = self._watch
        if watch is None or not self._capacity.has_room(self.board):
            return self.board, []
        running = {run.label: run.segment for run in self.runs}
        late = (running[label] for label in watch.paces.late() if label in running)
        doubled = (double(self.board, segment, watch.paces.patience.second_runs) for segment in late)
        return next((found for found in doubled if found[1]), (self.board, []))

    def _look(self) -> None:
        if self._doubled()[1]:
            self._changed.set()

    def _start(self, started: tuple[Board, list[Run]]) -> None:
        self.board, runs = started
        for started_run in runs:
            run = replace(started_run, cores=self._cores_for(started_run))
            task = self._owner.start(self._result(run), run.label)
            task.add_done_callback(self._wake)
            self._runs[task] = run

    async def _result(self, run: Run) -> ResultT | Lost:
        try:
            return await self._work(run)
        except CodecfleetError as error:
            return Lost(run.segment, error, attempt=run.attempt)

    def _cores_for(self, run: Run) -> int:
        done = 0 if self._watch is None else sum(self._watch.frames(other.label) for other in self.runs)
        frames_left = sum(self.board.frames_left) - done
        frames, at_once = self.board.segments[run.segment].frames, self._capacity.at_once(self.board)
        return cores_for(frames, frames_left, at_once=at_once, cores=self._capacity.cores())

    async def _ended(self) -> list[asyncio.Task[ResultT | Lost]]:
        """Wait until runs have ended, which are returned in the order of their start, or there is room for more."""
        more = self._owner.start(self._capacity.more(), "more slots")
        more.add_done_callback(self._wake)
        try:
            async with asyncio.timeout(None if self._runs else WAITING_S):
                await self._changed.wait()
        except TimeoutError:
            await self._capacity.waiting()
        finally:
            self._changed.clear()
            more.cancel()
        return [task for task in self._runs if task.done()]

    def _wake(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self._changed.set()

    async def _take_end(self, run: Run, task: asyncio.Task[ResultT | Lost]) -> None:
        """Take in the end of a run, unless it was withdrawn or another run gave its segment."""
        if self.board.awaits(run.segment, run.attempt):
            await self._take(await self._fact(run, task))

    async def _fact(self, run: Run, task: asyncio.Task[ResultT | Lost]) -> Event:
        result = task.result()
        if not isinstance(result, Lost):
            return await self._accept(run, result)
        if isinstance(result.error, WorkerOutOfMemory):
            self._capacity.relieve(result.error, len(self._runs) + 1)
        return result

    async def _take_posted(self) -> None:
        while self._posted:
            await self._take(self._posted.popleft())

    async def _take(self, event: Event) -> None:
        self.board, effects = decide(self.board, event)
        for effect in effects:
            match effect:
                case Fail(error):
                    raise error
                case Withdraw(segment, attempt):
                    self._withdraw(segment, attempt)
                case Join(segment):
                    await self._join(self.board, segment)
                case Drop(segment) if self._drop is not None:
                    self._drop(segment)

    def _withdraw(self, segment: int, attempt: int) -> None:
        for task, run in self._runs.items():
            if (run.segment, run.attempt) == (segment, attempt):
                self.wasted_frames += 0 if self._watch is None else self._watch.frames(run.label)
                task.cancel()


def finished(run: Run, tally: SegmentTally, entry: AccessPoint | None, index: TrackIndex) -> Finished:
    """Return the event of a run with this ``tally``, decoded from ``entry`` (None: the track's start)."""
    return Finished(
        run.segment,
        run.until,
        tally.seam_before,
        tally.seam_after,
        at_start=entry is None,
        sound=index.is_sound(entry, tally.first_damaged_packet),
        attempt=run.attempt,
    )
