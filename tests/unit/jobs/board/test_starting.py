"""Which segment starts next, and with how many cores: played on a board with workers of one speed."""

import heapq
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.model import plain_demand
from codecfleet.jobs.board.board import (
    END_PER_WORKER,
    THREADS_PER_CORE,
    Board,
    cores_for,
    decide,
    in_starting_order,
    start_next,
)
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import BoardLoop, Capacity
from codecfleet.jobs.board.segment import BoardSegment

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=80)
AT_ONCE = st.integers(1, 16)


def makespan(lengths: list[int], at_once: int) -> int:
    """Return when the last segment ends, if each takes as long as it has frames; all are joined by then."""
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
    """The last segment then ends at most one segment's time after the optimum."""
    longest = max(lengths)
    if max(lengths) <= 2 * min(lengths):  # no segment outlasts two others, so the window never fills up
        assert makespan(lengths, at_once) <= (sum(lengths) - longest) / at_once + longest


def test_a_short_first_segment_holds_no_other_up() -> None:
    """Segments go on in the film's order while many are left: a short one is not left behind to block the window."""
    assert makespan([10, *[20] * 31], 4) == 160


def test_the_last_ones_end_together() -> None:
    """Segments that would be left over at the end start first."""
    assert makespan([*[10] * 16, 10, 10, 10, 10, 10, 10, 10, 40], 4) == 70


@given(LENGTHS, AT_ONCE)
def test_all_that_waits_starts_in_some_order(lengths: list[int], at_once: int) -> None:
    """None is left out; the film's order holds while many wait, and then longer ones never come after shorter ones."""
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
    """It gets more where less is left beside it, and twice its share where segments fill the machine."""
    cores = at_once + idle
    found = cores_for(frames, frames + others, at_once=at_once, cores=cores)
    assert 1 <= found <= cores
    assert found <= cores_for(frames, frames + others // 2, at_once=at_once, cores=cores)
    if not idle and frames + others >= at_once * frames:
        assert found == min(cores, THREADS_PER_CORE)


def test_few_segments_share_all_cores() -> None:
    """Three segments on 16 cores have eleven each; the last of a film, beside others that are nearly done, all."""
    assert cores_for(250, 750, at_once=3, cores=16) == 11
    assert cores_for(250, 250 + 15 * 15, at_once=16, cores=16) == 16
    # Slots that memory keeps from more segments leave cores for those that run.
    assert cores_for(250, 100 * 250, at_once=8, cores=16) == 4


class Wide(Capacity):
    """Runs on eight cores."""

    def cores(self) -> int:
        """Return eight."""
        return 8


async def test_each_run_is_told_its_cores() -> None:
    """The loop passes the number on with the run: more for the last one than for those before it."""
    told: dict[int, int] = {}

    async def work(run: Run) -> Run:
        told[run.segment] = run.cores
        return run

    async def accept(run: Run, _result: Run) -> Finished:
        return Finished(run.segment, run.until, (), (), attempt=run.attempt, at_start=True)

    async def join(_board: Board, _segment: int) -> None:
        pass

    frames = plain_demand("j", 5).segments
    await BoardLoop(Board.of(frames), Wide(4), work=work, accept=accept, join=join).run()
    assert told == {0: 4, 1: 4, 2: 4, 3: 4, 4: 8}
