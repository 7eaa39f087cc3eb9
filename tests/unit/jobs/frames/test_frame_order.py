"""The order in which segments of a stream of frames are handed out, without decoding."""

import threading
from collections.abc import Callable
from fractions import Fraction

import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet import Frame
from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.errors import EngineFailed, ProofFailed
from codecfleet.jobs.board.board import Board, decide, start_next
from codecfleet.jobs.board.events import Began, Delivered, Drop, Event, Fail, Finished, Join, Lost
from codecfleet.jobs.frames.request import FramesReport
from codecfleet.jobs.frames.window import FrameWindow, Superseded


def blank(index: int) -> Frame:
    """Return a frame that only its number identifies."""
    format_ = VideoFormat(16, 16, "gray", Fraction(25))
    picture = VideoFrame(16, 16, "gray")
    return Frame(index=index, ticks=index, time_base=Fraction(1, 25), start_ticks=0, format=format_, _picture=picture)


def window(wake: Callable[[], None] = lambda: None, segment_bytes: int = 100) -> FrameWindow:
    """Return an empty window."""
    return FrameWindow(segment_bytes, wake, FramesReport())


def seam(*ticks: int) -> tuple[PictureHash, ...]:
    """Return hashes of pictures that only their times identify."""
    return tuple(PictureHash(each, b"") for each in ticks)


def end(
    segment: int, before: tuple[int, ...], after: tuple[int, ...], *, at_start: bool = False, attempt: int = 1
) -> Finished:
    """Return the board's event for a decoded segment."""
    return Finished(segment, segment, seam(*before), seam(*after), at_start=at_start, attempt=attempt)


def running(segments: int, at_once: int = 2) -> Board:
    """Return a board whose first segments run."""
    return start_next(Board.of([9] * segments, streams=True), at_once)[0]


def taken(board: Board, *events: Event) -> tuple[Board, list[object]]:
    """Return the board after some events, and the effects of all of them."""
    effects: list[object] = []
    for event in events:
        board, more = decide(board, event)
        effects += more
    return board, effects


def test_a_segment_is_open_once_the_one_before_is_over_and_agrees() -> None:
    """The first segment is open from the start, the next once the previous has ended and its beginning is proven."""
    board, effects = taken(running(2), Began(1, seam(5, 6), 0, at_start=False), end(0, (0, 1), (5, 6), at_start=True))
    assert effects == []  # the frames of the first segment are not taken yet
    board, effects = taken(board, Delivered(0))
    assert effects == [Join(1)]
    board, effects = taken(board, end(1, (5, 6), ()), Delivered(1))
    assert effects == []
    assert board.is_done


def test_a_seam_that_differs_is_decoded_again_and_at_last_given_up() -> None:
    """A run whose seam differs is dropped and decoded from further back, until the track's start."""
    board = running(2)
    board, effects = taken(
        board, Began(1, seam(7, 8), 2, at_start=False), end(0, (0,), (1, 2), at_start=True), Delivered(0)
    )
    assert effects == [Drop(1)]
    assert start_next(board, 2)[1] == []  # the thread of the run has not ended yet
    board, effects = taken(board, Began(1, seam(1, 2), 0, at_start=False), end(1, (7, 8), ()))
    assert effects == []
    board, (again,) = start_next(board, 2)
    assert (again.segment, again.entry_moves) == (1, 3)
    _, (fail,) = taken(board, end(1, (7, 8), (), at_start=True, attempt=2))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, ProofFailed)


def test_what_was_decoded_before_its_left_neighbour_ended_is_compared_too() -> None:
    """A whole segment whose beginning differs is dropped and waits again."""
    board, effects = taken(running(2), end(1, (7, 8), ()), end(0, (0,), (1, 2)), Delivered(0))
    assert effects == [Drop(1)]
    assert [run.entry_moves for run in start_next(board, 2)[1]] == [1]


def test_no_segment_beyond_the_window_begins() -> None:
    """As many segments are in memory as may run, the earliest first, until the first one is delivered."""
    board, runs = start_next(Board.of([1, 5, 9], streams=True), 2)
    assert [run.segment for run in runs] == [0, 1]
    board, _ = taken(board, end(0, (0,), (1,)), end(1, (1,), (2,)))
    assert start_next(board, 2)[1] == []
    board, _ = taken(board, Delivered(0))
    assert [run.segment for run in start_next(board, 2)[1]] == [2]


@pytest.mark.parametrize("begun", [True, False])
def test_a_segment_that_breaks_off_is_open_in_its_turn(*, begun: bool) -> None:
    """The frames of a failed segment come before its error, unless its beginning differs from its neighbour's end."""
    error = EngineFailed("it broke")
    first: tuple[Event, ...] = (Began(1, seam(1, 2), 0, at_start=False),) if begun else ()
    board, effects = taken(running(3), *first, Lost(1, error, attempt=1), end(0, (0,), (1, 2)))
    assert effects == []
    board, effects = taken(board, Delivered(0))
    assert effects == [Join(1)]
    wrong = Began(1, seam(8, 9), 0, at_start=False)
    board, effects = taken(running(2), wrong, Lost(1, error, attempt=1), end(0, (0,), (1, 2)), Delivered(0))
    assert effects == [Drop(1)]
    assert [run.segment for run in start_next(board, 2)[1]] == [1]


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_any_order_of_ends_delivers_every_segment_once_in_order(
    data: st.DataObject, segments: int, at_once: int
) -> None:
    """Whatever the order of ends and differing beginnings, each segment is joined once, in order."""
    board = Board.of([1] * segments, streams=True)
    bad = {n: data.draw(st.integers(0, 2)) for n in range(1, segments)}
    begun: dict[int, int] = {}
    joined, complete = [0], set[int]()
    while not board.is_done:
        board, runs = start_next(board, at_once)
        begun |= {run.segment: run.entry_moves for run in runs}
        assert len(begun) <= at_once
        choices: list[tuple[str, int]] = [("end", n) for n in begun] + [("begin", n) for n in begun]
        choices += [("deliver", joined[-1])] if joined[-1] in complete else []
        what, number = data.draw(st.sampled_from(choices))
        good = begun.get(number, 0) >= bad.get(number, 0)
        before, moves = (number * 10 + (0 if good else 5),), begun.get(number, 0)
        event: Event = Delivered(number)
        if what == "begin":
            event = Began(number, seam(*before), moves, at_start=False)
        elif what == "end":
            event = end(number, before, (number * 10 + 10,), attempt=board.segments[number].runs)
            del begun[number]
            complete.add(number)
        else:
            complete.remove(number)
        board, effects = decide(board, event)
        for effect in effects:
            assert isinstance(effect, Join | Drop)
            if isinstance(effect, Join):
                joined.append(effect.segment)
        complete -= {n for n in complete if board.segments[n].state.value == "waiting"}
    assert joined == list(range(segments))


def test_frames_come_in_the_order_of_their_segments() -> None:
    """Frames of a segment decoded early wait for those before; hidden frames wait for their segment's end."""
    frames = window()
    left, right = frames.queue(0), frames.queue(1)
    right.begin(whole=False)
    right.put(blank(1), 10)
    right.finish(SegmentTally())
    frames.complete(1)
    assert frames.take() is None
    left.begin(whole=True)
    left.put(blank(0), 10)
    assert frames.take() is None  # a device has not confirmed the segment yet
    left.finish(SegmentTally())
    first = frames.take()
    assert isinstance(first, Frame)
    assert frames.take() is None  # the thread of the run has not ended yet
    frames.complete(0)
    assert (first.index, frames.take(), frames.take()) == (0, 0, None)
    frames.open(1)
    second = frames.take()
    assert isinstance(second, Frame)
    assert (second.index, frames.take()) == (1, 1)
    assert (frames.report.frames, frames.report.segments, frames.report.held_bytes) == (2, 2, 0)


def test_no_thread_decodes_too_far_ahead() -> None:
    """The thread of a full segment waits for the consumer, but there is always room for one frame."""
    woken = threading.Semaphore(0)
    frames = window(woken.release, segment_bytes=25)
    left = frames.queue(0)

    def produce() -> None:
        for index in range(6):
            left.put(blank(index), 10)
        left.finish(SegmentTally())
        frames.complete(0)

    thread = threading.Thread(target=produce)
    thread.start()
    found: list[int] = []
    while (frame := frames.take()) != 0:
        if isinstance(frame, Frame):
            found.append(frame.index)
        else:
            assert woken.acquire(timeout=30)
    thread.join()
    assert found == list(range(6))
    assert frames.report.held_bytes_max <= 25
    frames.queue(1).put(blank(6), 1000)


def test_what_is_dropped_or_stopped_ends_its_thread() -> None:
    """Dropping a run drops its frames and ends its thread; stopping ends every thread."""
    frames = window()
    dropped = frames.queue(0)
    dropped.put(blank(7), 10)
    frames.drop(0)
    assert (frames.take(), frames.report.held_bytes, frames.report.entry_moves) == (None, 0, 1)
    with pytest.raises(Superseded):
        dropped.put(blank(8), 10)
    again = frames.queue(0)
    again.put(blank(0), 10)
    frames.stop()
    for queue in (again, frames.queue(1)):
        with pytest.raises(Superseded):
            queue.put(blank(1), 10)


def test_an_error_comes_after_the_frames_before_it() -> None:
    """An error comes after the frames that were decoded before it."""
    frames = window()
    queue = frames.queue(0)
    queue.put(blank(0), 10)
    queue.fail(EngineFailed("it broke"))
    assert isinstance(frames.take(), Frame)
    with pytest.raises(EngineFailed):
        frames.take()
