"""A segment that runs twice at once: only the first result counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.errors import EncoderFailed, InputUnreadable, WorkerLost
from codecfleet.jobs.board.board import Board, decide, double, start_next
from codecfleet.jobs.board.events import Event, Fail, Finished, Join, Lost, Run, Withdraw
from codecfleet.jobs.board.retries import ATTEMPTS
from codecfleet.jobs.board.segment import SegmentState


def result(board: Board, run: Run) -> Finished:
    """Return the success of a run whose seams agree with its neighbours."""
    last = run.until == len(board.segments) - 1
    after = () if last else (PictureHash((run.until + 1) * 100, b""),)
    before = (PictureHash(run.segment * 100, b""),)
    return Finished(run.segment, run.until, before, after, at_start=run.segment == 0, attempt=run.attempt)


def doubled(segments: int = 1) -> tuple[Board, Run, Run]:
    """Return a board whose first segment runs twice, and both runs."""
    board, (first, *_) = start_next(Board.of([1] * segments), segments)
    board, (second,) = double(board, 0)
    return board, first, second


def test_the_second_run_has_its_own_name_and_number() -> None:
    """The second run has its own name and number, so that progress and cancellation tell the runs apart."""
    board, first, second = doubled()
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.label, second.label) == ("segment 0", "segment 0 again")
    assert (board.segments[0].state, board.running) == (SegmentState.DOUBLED, 2)


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_result_wins_and_the_late_one_is_ignored(winner: int) -> None:
    """The first result withdraws the other run, and a late result changes nothing."""
    board, *runs = doubled()
    won, late = runs[winner], runs[1 - winner]
    board, effects = decide(board, result(board, won))
    assert effects == [Withdraw(0, late.attempt), Join(0)]
    assert decide(board, result(board, late)) == (board, [])
    assert decide(board, Lost(0, WorkerLost("too late"), attempt=late.attempt)) == (board, [])


@pytest.mark.parametrize("dead", [0, 1])
def test_the_loss_of_one_leaves_the_other(dead: int) -> None:
    """If one run is lost, the other continues, and none is started."""
    board, *runs = doubled()
    board, effects = decide(board, Lost(0, WorkerLost("gone"), attempt=runs[dead].attempt))
    assert (effects, board.segments[0].state) == ([], SegmentState.RUNNING)
    assert start_next(board, 5)[1] == []
    assert decide(board, result(board, runs[1 - dead]))[1] == [Join(0)]


def test_a_budget_that_is_used_up_waits_for_the_other_run() -> None:
    """The job fails only when neither run can deliver the segment."""
    board = Board.of([1])
    for _ in range(ATTEMPTS - 1):
        board, (run,) = start_next(board, 1)
        board, _ = decide(board, Lost(0, EncoderFailed("hiccup"), attempt=run.attempt))
    board, (run,) = start_next(board, 1)
    board, (second,) = double(board, 0)
    board, effects = decide(board, Lost(0, EncoderFailed("hiccup"), attempt=run.attempt))
    assert effects == []
    _, (fail,) = decide(board, Lost(0, WorkerLost("gone"), attempt=second.attempt))
    assert isinstance(fail, Fail)


def test_what_no_retry_can_help_ends_the_job_whatever_else_runs() -> None:
    """A fault that no retry helps ends the job at once, although another run is in flight."""
    board, first, _ = doubled()
    error = InputUnreadable("gone")
    assert decide(board, Lost(0, error, attempt=first.attempt))[1] == [Fail(error)]


def test_a_segment_is_doubled_once() -> None:
    """A segment is doubled once: not while two runs are in flight, not after one was lost, and not without a run."""
    board, first, _ = doubled()
    assert double(board, 0) == (board, [])
    board, _ = decide(board, Lost(0, WorkerLost("gone"), attempt=first.attempt))
    assert double(board, 0) == (board, [])
    waiting = Board.of([1])
    assert double(waiting, 0) == (waiting, [])


def test_a_run_that_covers_too_little_leaves_the_other() -> None:
    """If the segment absorbed its neighbour while both ran, neither result covers it, and it runs once more."""
    board = Board.of([1, 1])
    board, (first, right) = start_next(board, 2)
    board, (second,) = double(board, 0)
    wrong = Finished(1, 1, (PictureHash(100, b"other"),), (), at_start=False, sound=False, attempt=right.attempt)
    while board.segments[1].state is not SegmentState.MERGED:
        board, _ = decide(board, wrong)
        board, runs = start_next(board, 4)
        wrong = Finished(1, 1, wrong.seam_before, (), at_start=False, sound=False, attempt=board.segments[1].runs)
        assert all(run.segment == 1 for run in runs)
    board, effects = decide(board, result(board, second))
    assert (effects, board.segments[0].state) == ([], SegmentState.RUNNING)
    board, _ = decide(board, result(board, first))
    assert [run.until for run in start_next(board, 2)[1]] == [1]


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_two_results_of_a_segment_in_any_order_join_it_once(data: st.DataObject, segments: int, at_once: int) -> None:
    """Whatever the order of ends, losses, doublings and late results, each segment is joined once, in order."""
    board = Board.of([1] * segments)
    outstanding: list[Run] = []
    joined: list[int] = []
    losses = dict.fromkeys(range(segments), 0)
    while outstanding or not board.is_done:
        board, runs = start_next(board, at_once)
        outstanding += runs
        choice = data.draw(st.sampled_from(["result", "again", "lost", "double"]))
        run = data.draw(st.sampled_from(outstanding))
        event: Event = result(board, run)
        if choice == "double":
            board, more = double(board, run.segment)
            outstanding += more
            continue
        if choice == "lost" and losses[run.segment] < ATTEMPTS - 1:
            losses[run.segment] += 1
            event = Lost(run.segment, EncoderFailed("hiccup"), attempt=run.attempt)
        if choice != "again":  # otherwise the same result arrives once more, later
            outstanding.remove(run)
        board, effects = decide(board, event)
        assert not any(isinstance(effect, Fail) for effect in effects)
        joined += [effect.segment for effect in effects if isinstance(effect, Join)]
        in_flight = {(run.segment, run.attempt) for run in outstanding}
        wanted = {(each.number, attempt) for each in board.segments for attempt in each.in_flight}
        assert wanted <= in_flight
    assert joined == list(range(segments))
