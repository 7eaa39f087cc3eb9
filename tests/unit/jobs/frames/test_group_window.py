"""The frames of planned reads: each change wakes the threads that can go on because of it, and no other."""

import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet import Frame
from codecfleet.actors.media.values import VideoFormat
from codecfleet.errors import FrameDamaged
from codecfleet.jobs.frames.group_window import GroupWindow, HeldFrames
from codecfleet.jobs.frames.request import FramesReport
from codecfleet.jobs.frames.selection import ReadPlan
from codecfleet.jobs.frames.window import FramesEnd, Superseded

LONG_S = 20
"""How long a test waits for a thread that a change must wake."""
FRAME_BYTES = 10
GROUP = 4
PICTURE = av.VideoFrame(16, 16, "gray")


def frame(number: int) -> Frame:
    """Return a frame with this number."""
    return Frame(
        index=number,
        ticks=number,
        time_base=Fraction(1, 25),
        start_ticks=0,
        format=VideoFormat(16, 16, "gray", Fraction(25)),
        _picture=PICTURE,
    )


def refused(number: int) -> FrameDamaged:
    """Return the error in place of a frame."""
    return FrameDamaged(f"frame {number}", "", number)


def window(
    numbers: Sequence[int],
    frames: int,
    *,
    threads: int = 2,
    wake: Callable[[], object] = bool,
    undecodable: Callable[[int], FrameDamaged] | None = refused,
) -> GroupWindow:
    """Return the window of these numbers, in groups of ``GROUP``, with memory for ``frames`` frames."""
    groups = [number // GROUP for number in range(max(numbers, default=0) + 1)]
    plan = ReadPlan.of(numbers, groups, most=frames, whole=False, merged=0)
    return GroupWindow(
        plan,
        FramesReport(),
        wake,
        undecodable,
        frame_bytes=FRAME_BYTES,
        limit_bytes=frames * FRAME_BYTES,
        threads=threads,
    )


def made(*numbers: int, size_bytes: int = FRAME_BYTES) -> list[tuple[int, Frame, int]]:
    """Return frames as a thread adds them."""
    return [(number, frame(number), size_bytes) for number in numbers]


class Waiting:
    """Calls a function in a thread, which must wait first."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.found: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found = self._call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.found = error

    def result(self) -> object:
        """Return the result or the error, once a change has woken the thread."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self.found


class Sleepers:
    """Tells when threads wait on a condition: make it before them."""

    def __init__(self, condition: threading.Condition) -> None:
        self._came = threading.Semaphore(0)
        self._wait = condition.wait
        condition.wait = self._noted  # type: ignore[method-assign]

    def _noted(self, timeout: float | None = None) -> bool:
        self._came.release()  # the lock is held until the thread waits
        return self._wait(timeout)

    def come(self, threads: int = 1) -> None:
        """Wait until so many more threads wait."""
        for _ in range(threads):
            assert self._came.acquire(timeout=LONG_S)


def begun(frames: GroupWindow) -> HeldFrames:
    """Begin the next read, for which there must be room."""
    held = frames.begin()
    assert held is not None
    return held


@pytest.fixture
def full() -> Iterator[tuple[GroupWindow, HeldFrames, Waiting]]:
    """Provide a window with one begun read that fills the memory, and a thread that waits to begin the next."""
    frames = window(range(8), GROUP)
    first = begun(frames)
    sleepers = Sleepers(frames._begins)
    waiting = Waiting(frames.begin)
    sleepers.come()
    yield frames, first, waiting
    frames.stop()


def test_a_read_begins_when_memory_becomes_free(full: tuple[GroupWindow, HeldFrames, Waiting]) -> None:
    """Frames that are handed out make room for the next read."""
    frames, first, waiting = full
    frames.put(first, made(0, 1, 2, 3))
    assert [frames.take().index for _ in range(4)] == [0, 1, 2, 3]
    held = waiting.result()
    assert isinstance(held, HeldFrames)
    assert held.read.numbers == (4, 5, 6, 7)


def test_a_read_begins_when_another_ends_with_fewer_frames(full: tuple[GroupWindow, HeldFrames, Waiting]) -> None:
    """A read that ends without its frames needs no memory for them, whether it failed or not."""
    frames, first, waiting = full
    frames.end(first, ValueError())
    assert isinstance(waiting.result(), HeldFrames)


def test_the_read_of_the_next_frame_always_begins() -> None:
    """The next frame's read begins even if frames that are held for later fill the memory."""
    frames = window([0, 4, 0, 0], 1)
    first = begun(frames)
    sleepers = Sleepers(frames._begins)
    waiting = Waiting(frames.begin)
    sleepers.come()
    frames.put(first, made(0, size_bytes=100 * FRAME_BYTES))
    frames.end(first)
    assert frames.take().index == 0
    assert isinstance(waiting.result(), HeldFrames)
    frames.stop()


def test_threads_end_when_the_last_read_begins() -> None:
    """All threads that wait for a read end when there is none left."""
    frames = window(range(8), GROUP, threads=4)
    first = begun(frames)
    sleepers = Sleepers(frames._begins)
    waiting = [Waiting(frames.begin) for _ in range(3)]
    sleepers.come(3)
    frames.end(first)
    assert sorted(isinstance(each.result(), HeldFrames) for each in waiting) == [False, False, True]


def test_room_for_several_reads_wakes_several_threads() -> None:
    """A thread that begins a read wakes the next one as long as there is room."""
    frames = window([0, 1, 2, 3, 4, 8, 12], GROUP, threads=4)
    first = begun(frames)
    sleepers = Sleepers(frames._begins)
    waiting = [Waiting(frames.begin) for _ in range(3)]
    sleepers.come(3)
    frames.end(first)
    found = [each.result() for each in waiting]
    assert sorted(each.read.numbers for each in found if isinstance(each, HeldFrames)) == [(4,), (8,), (12,)]


def test_a_full_read_goes_on_when_a_frame_is_taken() -> None:
    """A thread that waits for room adds its frame when the user has taken one, and first tells of earlier frames."""
    woken: list[bool] = []
    frames = window(range(4), 4, wake=lambda: woken.append(True))
    first = begun(frames)
    assert frames.poll() is None
    sleepers = Sleepers(first.room)
    waiting = Waiting(lambda: frames.put(first, made(0, 1, 2, 3, size_bytes=2 * FRAME_BYTES)))
    sleepers.come()
    assert woken
    assert [frames.take().index for _ in range(4)] == [0, 1, 2, 3]
    assert waiting.result() is None
    assert frames.report.held_bytes == 0
    assert frames.report.held_bytes_max == 4 * FRAME_BYTES


def test_frames_after_one_that_never_comes_do_not_wait_for_room() -> None:
    """A full read goes on, and ends, once its missing frame is the next; nobody reads further ahead before."""
    frames = window(range(4), 1)
    first = begun(frames)
    sleepers = Sleepers(first.room)
    waiting = Waiting(lambda: frames.put(first, made(0, 2, 3)))
    sleepers.come()
    assert frames.take().index == 0
    assert frames.poll() is None
    assert waiting.result() is None
    frames.end(first)
    with pytest.raises(FrameDamaged):
        frames.take()
    assert [frames.take().index for _ in range(2)] == [2, 3]
    assert frames.report.held_bytes == 0
    assert frames.report.held_bytes_max == 2 * FRAME_BYTES


def test_the_user_is_woken_for_the_frame_that_comes_next() -> None:
    """A frame of another read wakes nobody; the awaited read's frame, error or end does."""
    woken: list[int] = []
    frames = window(range(8), 8, wake=lambda: woken.append(1))
    first, second = begun(frames), begun(frames)
    assert frames.poll() is None
    frames.put(second, made(4, 5))
    assert not woken
    frames.put(first, made(0))
    assert len(woken) == 1
    assert frames.take().index == 0
    sleepers = Sleepers(frames._ready)
    taking = Waiting(frames.take)
    sleepers.come()
    frames.end(first, ValueError("lost"))
    assert str(taking.result()) == "lost"


def test_the_end_comes_after_the_last_read_has_ended() -> None:
    """Counts are complete when the user hears that there are no more frames."""
    frames = window(range(4), 4)
    first = begun(frames)
    frames.put(first, made(0, 1, 2, 3))
    assert [frames.take().index for _ in range(4)] == [0, 1, 2, 3]
    sleepers = Sleepers(frames._ready)
    taking = Waiting(frames.take)
    sleepers.come()
    frames.end(first)
    assert isinstance(taking.result(), FramesEnd)
    assert frames.report.segments == 1


@pytest.mark.parametrize("undecodable", [refused, None])
def test_a_frame_that_never_comes_ends_the_wait(undecodable: Callable[[int], FrameDamaged] | None) -> None:
    """A user who waits for a frame that cannot be decoded gets an error, or the next frame."""
    frames = window(range(4), 4, undecodable=undecodable)
    first = begun(frames)
    frames.put(first, made(2))
    sleepers = Sleepers(frames._ready)
    taking = Waiting(frames.take)
    sleepers.come()
    frames.end(first)
    found = taking.result()
    assert (found.frame if isinstance(found, FrameDamaged) else found.index if isinstance(found, Frame) else None) == (
        2 if undecodable is None else 0
    )


def test_stopping_wakes_everybody() -> None:
    """Threads that wait for a read, for room or for a frame end when the frames are no longer wanted."""
    frames = window(range(16), 8, threads=3)
    _, second = begun(frames), begun(frames)
    sleepers = [Sleepers(frames._begins), Sleepers(second.room), Sleepers(frames._ready)]
    waiting = [Waiting(frames.begin), Waiting(frames.begin)]
    full = Waiting(lambda: frames.put(second, made(4, 5, 6, size_bytes=3 * FRAME_BYTES)))
    taking = Waiting(frames.take)
    for each, threads in zip(sleepers, (2, 1, 1), strict=True):
        each.come(threads)
    frames.stop()
    assert [each.result() for each in waiting] == [None, None]
    assert isinstance(full.result(), Superseded)
    assert isinstance(taking.result(), FramesEnd)
    assert frames.report.held_bytes == 0


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 39), min_size=1, max_size=60),
    ascends=st.booleans(),
    frames=st.integers(1, 12),
    threads=st.integers(1, 5),
    padding=st.integers(0, FRAME_BYTES),
    lost=st.sets(st.integers(0, 39), max_size=30),
)
def test_every_frame_comes_in_order(
    numbers: list[int], frames: int, threads: int, padding: int, lost: set[int], *, ascends: bool
) -> None:
    """All frames come in any order, with any memory, padding and number of threads; nobody waits for ever."""
    numbers = sorted(numbers) if ascends else numbers
    held = window(numbers, frames, threads=threads, undecodable=None)

    def work() -> None:
        while (read := held.begin()) is not None:
            for number in read.read.numbers:
                if number not in lost:
                    held.put(read, made(number, size_bytes=FRAME_BYTES + padding))
            held.end(read)

    def take() -> list[int]:
        found: list[int] = []
        try:
            while True:
                found.append(held.take().index)
        except FramesEnd:
            return found

    workers = [Waiting(work) for _ in range(threads)]
    assert Waiting(take).result() == [number for number in numbers if number not in lost]
    assert [worker.result() for worker in workers] == [None] * threads
    assert held.report.held_bytes == 0
