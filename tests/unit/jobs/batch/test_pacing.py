"""How many files are in flight, and the time left."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.batch.pacing import eta_s, wants_file

LEFT = st.lists(st.none() | st.integers(0, 100), max_size=40)


def started(first: list[int | None], *, segments: int, slots: int, most: int) -> int:
    """Return how many files are in flight once no more is wanted, each with that number of segments."""
    left = list(first)
    while wants_file(left, slots=slots, most=most):
        left.append(segments)
    return len(left)


def test_a_long_film_runs_alone_and_small_files_together() -> None:
    """Workers are kept busy, by one file of many segments or by many of one."""
    assert started([], segments=500, slots=8, most=64) == 1
    assert started([], segments=1, slots=8, most=64) == 16
    assert started([], segments=1, slots=100, most=64) == 64
    assert started([], segments=1, slots=1, most=64) == 4


@given(LEFT, st.integers(1, 100), st.integers(1, 64))
def test_files_in_flight_are_bounded(left: list[int | None], slots: int, most: int) -> None:
    """Never more than asked for, and none where the segments in flight are enough."""
    if wants_file(left, slots=slots, most=most):
        assert len(left) < most
        assert sum(each or 0 for each in left) < max(4, 2 * slots)


@given(LEFT, st.integers(1, 100))
def test_workers_that_have_nothing_to_do_get_a_file(left: list[int | None], slots: int) -> None:
    """Files that are being joined or proven keep no other from starting."""
    assert wants_file([0 for _ in left], slots=slots, most=64)


def test_the_time_left_follows_the_pace() -> None:
    """Nothing done: unknown; nothing left: none."""
    assert eta_s(10, done=0, left=5) is None
    assert eta_s(10, done=2, left=4) == 20
    assert eta_s(10, done=0, left=0) == 0
