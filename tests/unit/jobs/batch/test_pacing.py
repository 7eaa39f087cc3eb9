"""How many files are in flight, and the demand of the waiting files."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.autoscale.later import LaterDemand
from codecfleet.jobs.batch.pacing import PlannedFiles, wants_file

LEFT = st.lists(st.none() | st.integers(0, 100), max_size=40)


def started(first: list[int | None], *, segments: int, slots: int, most: int) -> int:
    """Return how many files with this number of segments each are started."""
    left = list(first)
    while wants_file(left, slots=slots, most=most):
        left.append(segments)
    return len(left)


def test_a_long_film_runs_alone_and_small_files_together() -> None:
    """One file with many segments, or many files with one, keep the workers busy."""
    assert started([], segments=500, slots=8, most=64) == 1
    assert started([], segments=1, slots=8, most=64) == 16
    assert started([], segments=1, slots=100, most=64) == 64
    assert started([], segments=1, slots=1, most=64) == 4


@given(LEFT, st.integers(1, 100), st.integers(1, 64))
def test_files_in_flight_are_bounded(left: list[int | None], slots: int, most: int) -> None:
    """No more files start than requested, and none if the segments in flight suffice."""
    if wants_file(left, slots=slots, most=most):
        assert len(left) < most
        assert sum(each or 0 for each in left) < max(4, 2 * slots)


@given(LEFT, st.integers(1, 100))
def test_workers_that_have_nothing_to_do_get_a_file(left: list[int | None], slots: int) -> None:
    """Files that are being joined or proven do not keep other files from starting."""
    assert wants_file([0 for _ in left], slots=slots, most=64)


def test_what_waits_is_as_what_was_planned() -> None:
    """Each waiting file is assumed to need as much work as the average planned file.

    There is no demand if nothing has been planned or no more files fit.
    """
    planned = PlannedFiles()
    assert planned.later("job", waiting=100, room=60) is None
    planned.add(segments=12, frames=3000)
    planned.add(segments=1, frames=100)
    assert planned.later("job", waiting=100, room=60) == LaterDemand("job", segments=390, frames=155_000)
    assert planned.later("job", waiting=1, room=60) == LaterDemand("job", segments=7, frames=1550)
    assert planned.later("job", waiting=100, room=0) is None
    assert planned.later("job", waiting=0, room=60) is None


@given(
    st.integers(0, 100_000),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 1_000_000)), max_size=20),
    st.integers(-1, 64),
)
def test_what_waits_is_never_more_than_the_largest_files_would_be(
    waiting: int, files: list[tuple[int, int]], room: int
) -> None:
    """The demand of waiting files exceeds that of the largest files neither in frames nor in concurrent segments."""
    planned = PlannedFiles()
    for segments, frames in files:
        planned.add(segments, frames)
    if (found := planned.later("job", waiting, room)) is not None:
        assert 0 < found.frames <= waiting * max(frames for _, frames in files)
        assert 0 < found.segments <= room * max(segments for segments, _ in files)
