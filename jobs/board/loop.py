"""Carries out the effects of a board: starts runs, reports their results to the board, and joins segments."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ...actors.media.seeking import AccessPoint
from ...actors.segment.walk import SegmentTally
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool, more_slots
from ...cluster.grouping import counted
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError, FleetUnavailable, WorkerOutOfMemory
from ..request.running import WaitOptions
from ..source.index import TrackIndex
from .board import Board, cores_for, decide, double, start_next
from .events import Drop, Event, Fail, Finished, Join, Lost, Run, Withdraw
from .watch import WorkWatch

PROGRESS_INTERVAL_S = 0.25
WAITING_S = 5.0  #: The time between two reports of the reason why a job has no worker
ResultT = TypeVar("ResultT")


class Capacity:
    """A limit on the number of concurrent runs: here, a fixed number."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once

    def at_once(self, board: Board) -> int:
        """Return how many runs ``board`` may have at the same time now."""
        del board
        return self._at_once

    def has_room(self, board: Board) -> bool:
        """Return whether another run may start."""
        return self.at_once(board) > board.running

    def cores(self) -> int:
        """Return how many cores all runs together may use."""
        return self._at_once

    async def more(self) -> None:
        """Wait until ``at_once`` may return a larger number; this may take forever.

        Raises CodecfleetError: there will never be a worker.
        """
        await asyncio.Event().wait()

    async def waiting(self) -> None:
        """Record that nothing has run for another ``WAITING_S``.

        Raises CodecfleetError: nothing has run for too long.
        """

    def relieve(self, error: WorkerOutOfMemory, running: int) -> None:
        """Record that a worker ran out of memory while ``running`` runs were in flight."""

    def release(self) -> None:
        """Record that the board is done."""


class WorkerWait:
    """Measures how long a job has had no worker while this process was awake; ``on_waiting`` receives the reason."""

    def __init__(
        self, pool: Pool, job: str, options: WaitOptions, on_waiting: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._pool = pool
        self._job = job
        self._limit_s = float(options.wait_s)
        self._on_waiting = on_waiting
        self._waited_s = 0.0

    async def goes_on(self, waited_s: float) -> None:
        """Add ``waited_s`` to the time waited, and report why the job waits.

        Raises FleetUnavailable: the job has waited too long.
        """
        reason = self._pool.state.of(self._job).waits_for
        if self._on_waiting is not None:
            await self._on_waiting(reason)
        self._waited_s += waited_s
        if 0 < self._limit_s <= self._waited_s:
            because = f": {reason}" if reason else ""
            message = f"the job has had no worker for {self._waited_s:g} s{because}"
            raise FleetUnavailable(message, "See codecfleet status; --wait-seconds 0 waits forever.")

    async def run(self) -> None:
        """Count the time without a worker until cancelled. Raises FleetUnavailable: the job has waited too long."""
        while True:
            await asyncio.sleep(WAITING_S)
            await self.goes_on(WAITING_S)

    def is_over(self) -> None:
        """Reset the count: the job has a worker."""
        self._waited_s = 0.0


class PoolCapacity(Capacity):
    """The slots, at most ``workers``, that a pool gives a job for the unfinished part of ``demand``."""

    def __init__(self, pool: Pool, demand: Demand, workers: int | None, wait: WorkerWait) -> None:
        super().__init__(0)
        self._pool = pool
        self._demand = demand
        self._workers = workers
        self._wait = wait
        self._relieved: set[str] = set()
        self._is_held = False

    def at_once(self, board: Board) -> int:
        """Report the remaining demand to the pool, and return how many runs it allows."""
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
        """Return whether another run may start.

        If no segment waits, a second run of a late segment may ask for a slot.
        """
        is_bounded = self._workers is not None and board.running >= self._workers
        return super().has_room(board) or not (board.waits or is_bounded)

    def cores(self) -> int:
        """Return how many cores the pool gives the job."""
        return self._pool.state.of(self._demand.job).cores

    async def more(self) -> None:
        """Wait until the pool has more slots for the job."""
        await more_slots(self._pool, self._demand.job, self._at_once)

    async def waiting(self) -> None:
        """Report why the job waits; fail once the job has waited too long."""
        await self._wait.goes_on(WAITING_S)

    def relieve(self, error: WorkerOutOfMemory, running: int) -> None:
        """Halve the number of runs, but only once for each dead worker: all of its runs report the same message."""
        if error.message not in self._relieved:
            self._relieved.add(error.message)
            self._workers = max(1, min(running, self._workers or running) // 2)

    def release(self) -> None:
        """Withdraw the job's demand, unless it is held."""
        if not self._is_held:
            self._pool.set_demand(self._demand.job, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the demand from one board to the next, so that the pool knows that more work follows immediately."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.release()


class BoardLoop(Generic[ResultT]):
    """Runs the segments of one job until all are joined. Use an instance only once.

    ``work`` runs a segment, ``accept`` returns the board's event for the result of a run, ``join`` receives the joined
    segments in order, and ``drop`` discards a run's output. With ``watch``, late segments get a second run when slots
    are free.
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
        self.wasted_frames = 0  #: the frames that withdrawn runs had done

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs in flight, in the order of their start."""
        return tuple(self._runs.values())

    @property
    def second_runs(self) -> str:
        """How many segments had a second run and how many frames that wasted, in words; "" if none had one."""
        if not self.board.doubled:
            return ""
        late = counted(self.board.doubled, "late segment")
        return f"{late} ran a second time elsewhere; {counted(self.wasted_frames, 'frame')} wasted"

    def post(self, event: Event) -> None:
        """Give the board an event other than the end of a run. Call this in the event loop's thread."""
        self._posted.append(event)
        self._changed.set()

    async def run(self) -> None:
        """Run the board.

        Raises CodecfleetError: a segment cannot be completed, there will never be a worker, or a callback failed.
        """
        if self._watch is not None:
            self._watch.on_look = self._look
        async with self._owner:
            try:
                while not self.board.is_done:
                    self._start_next()
                    for task in await self._ended():
                        await self._take_posted()  # a run posts its events before it ends
                        run = self._runs.pop(task)
                        # Another run may have delivered the same segment.
                        if self.board.awaits(run.segment, run.attempt):
                            await self._take(await self._fact(run, task))
                    await self._take_posted()
            finally:
                if self._watch is not None:
                    # After this point a sample would report the demand of a finished job.
                    self._watch.on_look = lambda: None
                self._capacity.release()

    async def report(self, progress: Callable[[Mapping[int, int]], Awaitable[None]]) -> None:
        """Call ``progress`` a few times a second with the frames done by each running segment, until cancelled."""
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
        """If there is room, return the new board, and the possible second run that gains the most time."""
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
        """Wait until a run ends or there may be room for more; return the ended runs in the order of their start."""
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
    """Return the event for a run with this ``tally``, decoded from ``entry`` (None for the track's start)."""
    return Finished(
        run.segment,
        run.until,
        tally.seam_before,
        tally.seam_after,
        at_start=entry is None,
        sound=index.is_sound(entry, tally.first_damaged_packet),
        attempt=run.attempt,
    )
