"""Which segment starts next, and with how many cores, on a board with equally fast workers."""

import heapq
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.model import plain_demand
from codecfleet.jobs.board.board import END_PER_WORKER, Board, cores_for, decide, in_starting_order, start_next
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import BoardLoop, Capacity
from codecfleet.jobs.board.segment import BoardSegment

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=80)
AT_ONCE = st.integers(1, 16)


def makespan(lengths: list[int], at_once: int) -> int:
    """Return when the last segment ends, if a frame takes a unit of time."""
    board, now, busy = Board.of(lengths), 0, list[tuple[int, int, Run]]()
    numbers = count()
    while not board.is_done:
        board, runs = start_next(board, at_once)
        for run in runs:
            heapq.heappush(busy, (now + lengths[run.segment], next(numbers), run))
        now, _, ended = heapq.heappop(busy)
        board, _ = decide(board, Finished(ended.segment, ended.until, (), (), at_start=True, attempt=ended.attempt))
    return now


@given(LENGTHS, AT_ONCE)
def test_no_worker_is_idle_while_a_segment_waits(lengths: list[int], at_once: int) -> None:
    """The last segment ends at most one segment's time after the optimum."""
    longest = max(lengths)
    if max(lengths) <= 2 * min(lengths):  # no segment is longer than two others, so the window is never full
        assert makespan(lengths, at_once) <= (sum(lengths) - longest) / at_once + longest


def test_a_short_first_segment_holds_no_other_up() -> None:
    """While many segments are left they start in film order, so no short segment blocks the window."""
    assert makespan([10, *[20] * 31], 4) == 160


def test_the_last_ones_end_together() -> None:
    """Near the end, the longest segments start first, so that all end together."""
    assert makespan([*[10] * 16, 10, 10, 10, 10, 10, 10, 10, 40], 4) == 70


@given(LENGTHS, AT_ONCE)
def test_all_that_waits_starts_in_some_order(lengths: list[int], at_once: int) -> None:
    """Every waiting segment starts: in film order while many wait, then the longer ones first."""
    waiting = [BoardSegment(number, number, frames) for number, frames in enumerate(lengths)]
    ordered = in_starting_order(waiting, at_once)
    assert sorted(ordered, key=lambda segment: segment.number) == waiting
    if len(waiting) > END_PER_WORKER * at_once:
        assert ordered == waiting
    else:
        assert [segment.frames for segment in ordered] == sorted(lengths, reverse=True)


@given(st.integers(1, 10**6), st.integers(0, 10**7), st.integers(1, 200), st.integers(0, 200))
def test_a_segment_has_one_core_at_least_and_never_more_than_the_job(
    frames: int, others: int, at_once: int, idle: int
) -> None:
    """A segment gets more cores if little is left beside it, and one core if segments fill the machine."""
    cores = at_once + idle
    found = cores_for(frames, frames + others, at_once=at_once, cores=cores)
    assert 1 <= found <= cores
    assert found <= cores_for(frames, frames + others // 2, at_once=at_once, cores=cores)
    if not idle and frames + others >= at_once * frames:
        assert found == 1


def test_few_segments_share_all_cores() -> None:
    """Three segments on 16 cores have five each; the last one of a long film gets eight."""
    assert cores_for(250, 750, at_once=3, cores=16) == 5
    assert cores_for(250, 250 + 15 * 15, at_once=16, cores=16) == 8
    # Two more threads are not worth it if all but one core are busy.
    assert cores_for(250, 15 * 250, at_once=15, cores=16) == 1
    # If memory limits the number of segments, the idle cores go to those that run.
    assert cores_for(250, 100 * 250, at_once=8, cores=16) == 2


class Wide(Capacity):
    """Two runs at once, on eight cores."""

    def cores(self) -> int:
        """Return eight."""
        return 8


async def test_each_run_is_told_its_cores() -> None:
    """Each run is told its number of cores, which is larger for the last segment."""
    told: dict[int, int] = {}

    async def work(run: Run) -> Run:
        told[run.segment] = run.cores
        return run

    async def accept(run: Run, _result: Run) -> Finished:
        return Finished(run.segment, run.until, (), (), attempt=run.attempt, at_start=True)

    async def join(_board: Board, _segment: int) -> None:
        pass

    frames = plain_demand("j", 3).segments
    await BoardLoop(Board.of(frames), Wide(2), work=work, accept=accept, join=join).run()
    assert told == {0: 4, 1: 4, 2: 8}
