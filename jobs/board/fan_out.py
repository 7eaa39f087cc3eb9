"""One round of work over a track's ranges on a pool, with results in order."""

from collections.abc import Callable, Mapping

from ...actors.device.work import Work
from ...actors.task_owner import TaskOwner
from ...cluster.grouping import counted
from ...cluster.placement.model import Demand
from ...errors import CodecfleetError
from ..request.running import WaitOptions
from .board import Board
from .events import Finished, Run
from .loop import BoardLoop, PoolCapacity, ResultT, WorkerWait
from .reach import SourceReach
from .threads import in_thread, shielded
from .watch import WorkWatch


async def fan_out(
    reach: SourceReach,
    demand: Demand,
    waits: WaitOptions,
    *,
    work: Callable[[Run], Work[ResultT]],
    end: Callable[[Run, ResultT], Finished],
    take: Callable[[ResultT], None],
    frames: Callable[[ResultT], int],
    progress: Callable[[int], None],
    may_fall_back: bool = True,
) -> list[str]:
    """Do the work of all segments of ``demand``, and return notes on repeated runs.

    Args:
        reach: the pool and the source; the source must not change.
        demand: the demand of the whole round; its segments are the ranges.
        waits: how long to wait for workers, and for running work.
        work: returns the work of a run.
        end: returns the board's event for a run's result.
        take: receives the results, in order, in a thread.
        frames: returns how many frames a result covers.
        progress: called a few times a second with the number of frames done.
        may_fall_back: whether software may decode when a device fails.

    Raises CodecfleetError: a range cannot be completed, or ``take`` failed.
    """
    watch = WorkWatch(reach.pool, waits, bind=reach.bind)
    losses, results, done = list[str](), dict[int, ResultT](), 0

    async def run(run: Run) -> ResultT:
        try:
            return await watch.submit(work(run), sum(demand.segments[run.segment : run.until + 1]))
        except CodecfleetError as error:
            losses.append(error.message)
            raise

    async def accept(run: Run, result: ResultT) -> Finished:
        await in_thread(reach.stamp.check)
        results[run.segment] = result
        return end(run, result)

    async def join(_board: Board, segment: int) -> None:
        nonlocal done
        result = results.pop(segment)
        await shielded(take, result)
        done += frames(result)

    async def report(running: Mapping[int, int]) -> None:
        progress(done + sum(map(frames, results.values())) + sum(running.values()))

    capacity = PoolCapacity(reach.pool, demand, demand.workers_max, WorkerWait(reach.pool, demand.job, waits))
    board = Board.of(demand.segments, may_fall_back=may_fall_back)
    loop = BoardLoop(board, capacity, work=run, accept=accept, join=join, watch=watch)
    async with TaskOwner() as owner:
        owner.start(watch.run(), "watch")
        owner.start(loop.report(report), "progress")
        await loop.run()
    second = [loop.second_runs] if loop.second_runs else []
    if not losses:
        return second
    runs = counted(len(losses), "run")
    return [f"{runs} of segments failed and were retried; the last because {losses[-1]}", *second]
