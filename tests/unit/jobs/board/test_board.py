import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.errors import CodecfleetError, DeviceLost, EncoderFailed, SegmentFailed, WorkerBroken, WorkerLost
from codecfleet.jobs.board.board import UNSOUND_MOVES, Board, decide, seams_agree, start_next
from codecfleet.jobs.board.events import Fail, Finished, Join, Lost
from codecfleet.jobs.board.retries import ATTEMPTS
from codecfleet.jobs.board.segment import SegmentState


def seam(cut: int, digest: bytes = b"same") -> tuple[PictureHash, ...]:
    """Return the pictures past a cut."""
    return (PictureHash(cut, digest), PictureHash(cut + 1, digest))


def finish(segment: int, *, before: bytes = b"same", at_start: bool = False) -> Finished:
    """Return a first run's success, with seams at its own number and at its end."""
    return Finished(segment, segment, seam(segment * 100, before), seam(segment * 100 + 100), at_start, attempt=1)


def last(segment: int, *, before: bytes = b"same", sound: bool = True, attempt: int = 1) -> Finished:
    """Return the success of the last segment, which has no seam at its end."""
    return Finished(segment, segment, seam(segment * 100, before), (), at_start=False, sound=sound, attempt=attempt)


def test_what_lies_beyond_the_window_waits() -> None:
    """No segment starts too far ahead of an unfinished one."""
    board = Board.of([10] * 40)
    board, _ = start_next(board, 1)
    for number in range(1, 4):
        board, (run,) = start_next(board, 2)
        assert run.segment == number
        board, _ = decide(board, finish(number))
    assert start_next(board, 1)[1] == []


def test_a_differing_seam_moves_the_right_entry_back() -> None:
    """If the pictures past a cut differ, the segment on the right is decoded again from further back."""
    board, _ = start_next(Board.of([1, 1]), 2)
    board, _ = decide(board, finish(0, at_start=True))
    board, effects = decide(board, last(1, before=b"other"))
    assert effects == []
    _, (run,) = start_next(board, 2)
    assert (run.segment, run.entry_moves) == (1, 1)


def test_a_cut_that_nothing_proves_is_given_up() -> None:
    """If decoding from the start does not agree either, the segment is merged into its left neighbour."""
    board, _ = start_next(Board.of([1, 1, 1]), 3)
    board, _ = decide(board, finish(0, at_start=True))
    board, _ = decide(board, finish(2))
    board, _ = decide(board, finish(1, before=b"other", at_start=True))
    assert board.segments[1].state is SegmentState.MERGED
    board, (run,) = start_next(board, 3)
    assert (run.segment, run.until) == (0, 1)
    board, effects = decide(board, Finished(0, 1, (), seam(200), at_start=True, attempt=2))
    assert effects == [Join(0), Join(2)]
    assert board.is_done


def test_damage_met_from_an_unsound_entry_is_decoded_from_further_back() -> None:
    """A segment with damage too soon after its entry is decoded again from further back."""
    board, _ = start_next(Board.of([1, 1]), 2)
    board, effects = decide(board, last(1, sound=False))
    assert effects == []
    assert (board.segments[1].state, board.segments[1].entry_moves) == (SegmentState.WAITING, 1)


def test_dense_damage_is_decoded_across_the_cut() -> None:
    """If no entry is sound, the segment is merged into its left neighbour, even while that neighbour runs."""
    board = Board.of([1, 1])
    for attempt in range(1, UNSOUND_MOVES + 2):
        board, _ = start_next(board, 2)
        board, _ = decide(board, last(1, sound=False, attempt=attempt))
    assert board.segments[1].state is SegmentState.MERGED
    board, effects = decide(board, finish(0, at_start=True))
    assert effects == []
    board, (run,) = start_next(board, 2)
    assert (run.segment, run.until) == (0, 1)


def test_what_was_joined_is_never_taken_back() -> None:
    """A damaged segment whose left neighbour is joined moves its entry further back instead of merging."""
    board, _ = start_next(Board.of([1, 1, 1]), 3)
    board, _ = decide(board, finish(0, at_start=True))
    board, effects = decide(board, finish(1))
    assert effects == [Join(0)]
    board, _ = decide(board, finish(2, before=b"other", at_start=True))
    for moves in range(UNSOUND_MOVES + 2):
        board, (run,) = start_next(board, 3)
        assert (run.segment, run.until, run.entry_moves) == (1, 2, moves)
        board, effects = decide(board, Finished(1, 2, seam(100), (), at_start=False, sound=False, attempt=run.attempt))
        assert effects == []
    board, (run,) = start_next(board, 3)
    board, effects = decide(board, Finished(1, 2, seam(100), (), at_start=True, attempt=run.attempt))
    assert effects == [Join(1)]
    assert board.is_done


def void(segment: int, attempt: int, *, at_start: bool = False) -> Finished:
    """Return the end of a run that decoded no picture where some are due."""
    return Finished(segment, segment, (), (), at_start, is_void=True, attempt=attempt)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_first_segment_without_pictures_takes_in_its_right_neighbour(order: tuple[int, int]) -> None:
    """A first segment without pictures absorbs its right neighbour."""
    board, _ = start_next(Board.of([1, 2, 1]), 3)
    ends = (void(0, 1), finish(1))
    for each in order:
        board, effects = decide(board, ends[each])
        assert effects == []
    board, _ = decide(board, finish(2))
    assert board.segments[1].state is SegmentState.MERGED
    board, (run,) = start_next(board, 3)
    assert (run.segment, run.until) == (0, 1)
    board, effects = decide(board, Finished(0, 1, (), seam(200), at_start=False, attempt=2))
    assert effects == [Join(0), Join(2)]
    assert board.is_done


def test_a_segment_without_pictures_becomes_one_with_the_segment_on_its_left() -> None:
    """A segment without pictures merges into its left neighbour, even if neither side of the seam saw a picture."""
    board, _ = start_next(Board.of([1, 1]), 2)
    board, _ = decide(board, Finished(0, 0, (), (), at_start=True, attempt=1))
    board, effects = decide(board, void(1, 1, at_start=True))
    assert effects == []
    board, (run,) = start_next(board, 2)
    assert (run.segment, run.until) == (0, 1)


def test_a_lone_segment_without_pictures_is_joined() -> None:
    """A lone segment without pictures is joined, so that the join reports it."""
    board, _ = start_next(Board.of([1]), 1)
    board, effects = decide(board, void(0, 1))
    assert effects == [Join(0)]


@pytest.mark.parametrize("error", [EncoderFailed("no frame came out"), DeviceLost("it is gone")])
def test_what_fails_is_tried_again_and_then_given_up(error: CodecfleetError) -> None:
    """A segment may fail a few times; then the job's error names the segment and the last reason."""
    board = Board.of([1], may_fall_back=False)
    for attempt in range(1, ATTEMPTS + 1):
        board, (run,) = start_next(board, 1)
        assert (run.attempt, len(run.history), run.constraints.software) == (attempt, attempt - 1, "")
        board, effects = decide(board, Lost(0, error, attempt=attempt))
    (fail,) = effects
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, SegmentFailed)
    assert copy.copy(fail.error).segment == 0
    assert f"{ATTEMPTS} times, last: {error.message}" in str(fail.error)


def test_seams_compare_what_both_sides_saw() -> None:
    """One side of a seam may have fewer pictures, but no picture and some pictures differ."""
    assert seams_agree(seam(5), seam(5)[:1])
    assert seams_agree((), ())
    assert not seams_agree(seam(5), ())
    assert not seams_agree(seam(5), seam(5, b"other"))
    assert not seams_agree(seam(5), seam(6))


class BoardMachine(RuleBasedStateMachine):
    """Whatever the order of ends, losses and differing seams, every frame is joined once, in order."""

    @initialize(frames=st.lists(st.integers(1, 50), min_size=1, max_size=12), at_once=st.integers(1, 5))
    def plan(self, frames: list[int], at_once: int) -> None:
        """Begin with a fresh board."""
        self.board = Board.of(frames)
        self.at_once = at_once
        self.joined: list[int] = []
        self.running: dict[int, tuple[int, int]] = {}
        self.bad_until = {n: (n * 7) % 4 for n in range(len(frames))}
        self.losses = dict.fromkeys(range(len(frames)), 0)

    @rule()
    def start(self) -> None:
        """Start what may start."""
        self.board, runs = start_next(self.board, self.at_once)
        for run in runs:
            assert run.segment not in self.running
            self.running[run.segment] = (run.until, run.entry_moves)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        """A segment ends, perhaps from an unsound entry."""
        segment = data.draw(st.sampled_from(sorted(self.running)))
        self._finish(segment, sound=data.draw(st.sampled_from([True, True, False])))

    def _finish(self, segment: int, *, sound: bool) -> None:
        """End a run whose seam agrees once its entry is far enough back, or never before the start."""
        until, moves = self.running.pop(segment)
        needed, at_start = self.bad_until[segment], segment == 0 or moves >= 3
        good = segment == 0 or (needed <= moves and needed != 3)
        before = seam(segment * 100, b"same" if good else b"wrong")
        after = () if until == len(self.board.segments) - 1 else seam((until + 1) * 100)
        attempt = self.board.segments[segment].runs
        self._take(Finished(segment, until, before, after, at_start, sound or at_start, attempt=attempt))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def lose_one(self, data: st.DataObject) -> None:
        """A worker dies, less often than the budget allows."""
        segment = data.draw(st.sampled_from(sorted(self.running)))
        if self.losses[segment] >= ATTEMPTS - 1:
            return
        self.losses[segment] += 1
        del self.running[segment]
        error = data.draw(st.sampled_from([EncoderFailed, WorkerLost, WorkerBroken, DeviceLost]))
        self._take(Lost(segment, error("hiccup"), attempt=self.board.segments[segment].runs))

    def _take(self, event: Finished | Lost) -> None:
        self.board, effects = decide(self.board, event)
        for effect in effects:
            assert isinstance(effect, Join)
            self.joined.append(effect.segment)

    @invariant()
    def joins_are_ordered_and_whole(self) -> None:
        """The joined segments are in order, without gaps and overlaps."""
        if not hasattr(self, "board"):
            return
        assert self.joined == sorted(set(self.joined))
        following = 0
        for segment in self.joined:
            assert segment == following
            following = self.board.segments[segment].until + 1

    @invariant()
    def work_goes_on(self) -> None:
        """Until all is joined, something runs or can start; in the end every planned segment is joined."""
        if not hasattr(self, "board"):
            return
        if self.board.is_done:
            assert sum(self.board.segments[n].until - n + 1 for n in self.joined) == len(self.board.segments)
        else:
            assert self.running or start_next(self.board, self.at_once)[1]

    @invariant()
    def never_more_at_once_than_allowed(self) -> None:
        """No more runs are in flight than there are workers."""
        if hasattr(self, "board"):
            assert self.board.running == len(self.running) <= self.at_once

    def teardown(self) -> None:
        """Without further faults, every job ends."""
        if not hasattr(self, "board"):
            return
        for _ in range(500):
            if self.board.is_done:
                break
            self.start()
            for segment in sorted(self.running):
                self._finish(segment, sound=True)
        assert self.board.is_done
        assert self.board.segments[self.joined[-1]].until == len(self.board.segments) - 1


TestBoardMachine = BoardMachine.TestCase
TestBoardMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
