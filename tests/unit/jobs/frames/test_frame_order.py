"""The order in which the segments of a stream of frames are handed out, with nothing decoded."""

import threading
from collections.abc import Callable
from fractions import Fraction

import pytest
from av.video.frame import VideoFrame

from codecfleet import Frame
from codecfleet.actors.decode.decoding import PictureHash
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.errors import (
    EngineFailed,
    ProofFailed,
)
from codecfleet.jobs.frames.request import FramesReport
from codecfleet.jobs.frames.slots import FramesEnd, FrameSlots, FrameTask, Superseded

# The order of segments by itself, with nothing decoded.


def blank(index: int) -> Frame:
    """Return a frame that is only told by its number."""
    format_ = VideoFormat(16, 16, "gray", Fraction(25))
    picture = VideoFrame(16, 16, "gray")
    return Frame(index=index, ticks=index, time_base=Fraction(1, 25), start_ticks=0, format=format_, _picture=picture)


def seam(*ticks: int) -> tuple[PictureHash, ...]:
    """Return hashes of pictures that are told by their times."""
    return tuple(PictureHash(each, b"") for each in ticks)


def slots(segments: int, wake: Callable[[], None] = lambda: None, **options: int) -> FrameSlots:
    """Return an order of segments, two at once."""
    return FrameSlots(segments, **({"at_once": 2, "slot_bytes": 100} | options), wake=wake, report=FramesReport())


def task(found: FrameTask | None) -> FrameTask:
    """Return a task that is there."""
    assert found is not None
    return found


def end(order: FrameSlots, done: FrameTask, before: tuple[int, ...], after: tuple[int, ...], *, at_start: bool) -> None:
    """Finish a segment."""
    order.finish(done, SegmentTally(seam_before=seam(*before), seam_after=seam(*after)), at_start=at_start)


def test_segments_are_handed_out_in_order() -> None:
    """The later segment may be decoded first: its frames wait for those before."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.begin(right, whole=False)
    order.put(right, blank(1), 10)
    end(order, right, (1,), (), at_start=False)
    assert order.poll() is None
    order.begin(left, whole=True)
    order.put(left, blank(0), 10)
    assert order.poll() is None  # a device is not sure of it yet
    end(order, left, (0,), (1,), at_start=True)
    found = [order.poll(), order.poll()]
    assert [frame.index for frame in found if frame is not None] == [0, 1]
    with pytest.raises(FramesEnd):
        order.poll()


def test_a_seam_that_differs_is_decoded_again_and_at_last_given_up() -> None:
    """The run that began otherwise is superseded; from the track's start there is no further back."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.begin(right, whole=False)
    order.see_beginning(right, seam(7, 8))
    order.put(right, blank(7), 10)
    end(order, left, (0,), (1, 2), at_start=True)
    assert order.poll() is None
    with pytest.raises(Superseded):
        order.put(right, blank(8), 10)
    again = task(order.next_task())
    assert (again.segment, again.entry_moves) == (1, 1)
    end(order, again, (7, 8), (), at_start=True)
    with pytest.raises(ProofFailed):
        order.poll()


def test_nobody_decodes_too_far_ahead() -> None:
    """A full segment's thread waits for the consumer, and no third segment begins; one frame always has room."""
    woken = threading.Semaphore(0)
    order = slots(3, wake=woken.release, slot_bytes=25)
    left = task(order.next_task())
    assert task(order.next_task()).segment == 1

    def produce() -> None:
        for index in range(6):
            order.put(left, blank(index), 10)
        end(order, left, (0,), (6,), at_start=True)

    thread = threading.Thread(target=produce)
    thread.start()
    found: list[int] = []
    while len(found) < 6:
        frame = order.poll()
        if frame is None:
            assert woken.acquire(timeout=30)
        else:
            found.append(frame.index)
    thread.join()
    assert found == list(range(6))
    assert order._report.held_bytes_max <= 25
    order.put(FrameTask(1, 0, 0), blank(6), 1000)
    order.stop()
    assert order.next_task() is None


def test_an_error_comes_after_the_frames_before_it() -> None:
    """What could be decoded is delivered first."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.fail(right, EngineFailed("it broke"))
    order.put(left, blank(0), 10)
    end(order, left, (0,), (), at_start=True)
    assert order.poll() is not None
    with pytest.raises(EngineFailed):
        order.poll()
