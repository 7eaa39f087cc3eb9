"""The rules of docs/timeline.md, over every kind of clock a decoder may report."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.verify.reference.reference_decode import ResetClock, divisor_of, repair

MILLISECOND = Fraction(1, 1000)
FORTY_MS = Fraction(40)

nominals = st.fractions(min_value=Fraction(1, 4), max_value=5000)
stamps = st.lists(st.one_of(st.none(), st.integers(-(10**6), 10**6)), max_size=60)


@given(stamps, nominals)
def test_times_strictly_increase_and_no_frame_is_lost(pts: list[int | None], nominal: Fraction) -> None:
    """Whatever the decoder states, every frame gets a distinct time."""
    timeline = repair(pts, nominal)
    assert sorted(timeline.order) == list(range(len(pts)))
    assert all(earlier < later for earlier, later in pairwise(timeline.times))


@given(st.lists(st.integers(-(10**6), 10**6), unique=True, max_size=60), nominals)
def test_distinct_times_are_kept(pts: list[int], nominal: Fraction) -> None:
    """A track without oddities is only sorted, and only the disorder is counted."""
    timeline = repair(pts, nominal)
    assert list(timeline.times) == sorted(pts)
    assert [pts[place] for place in timeline.order] == sorted(pts)
    assert (timeline.missing, timeline.repeated) == (0, 0)


@given(stamps, nominals)
def test_repairing_twice_changes_nothing(pts: list[int | None], nominal: Fraction) -> None:
    """Repairing repaired times changes nothing."""
    once = repair(pts, nominal).times
    assert repair(once, nominal).times == once


@given(stamps, nominals, st.integers(-(10**9), 10**9))
def test_a_later_start_moves_every_time_alike(pts: list[int | None], nominal: Fraction, shift: int) -> None:
    """Repaired times depend only on differences; a track without any PTS starts at 0."""
    if all(p is None for p in pts):
        return
    there = repair([None if p is None else p + shift for p in pts], nominal).times
    assert there == tuple(t + shift for t in repair(pts, nominal).times)


@given(stamps, nominals)
def test_frames_of_one_time_keep_the_decoders_order(pts: list[int | None], nominal: Fraction) -> None:
    """Frames of one time are sorted stably."""
    known = [p for p in pts if p is not None]
    order = repair(known, nominal).order
    assert all(a < b for a, b in pairwise(order) if known[a] == known[b])


@pytest.mark.parametrize(
    ("pts", "nominal", "times"),
    [
        ((0, None, None, 200), FORTY_MS, [0, 40, 80, 200]),  # R2: a missing time follows the frame before it
        ((None, None, 200), FORTY_MS, [120, 160, 200]),  # R2: frames before the first known time count back from it
        # R2: exact multiples of the frame's duration, rounded one by one, so that nothing drifts
        ((None,) * 4, Fraction(100, 3), [0, 33, 67, 100]),
        ((0, 0, 0, 100), FORTY_MS, [0, 33, 66, 100]),  # R4: spread evenly up to the next time, rounded down
        # R4: nominal steps if there is no room, and the next time moves back
        ((0, 0, 0, 2, 90), FORTY_MS, [0, 40, 80, 81, 90]),
        ((0, 100, 100, 100), Fraction(100, 3), [0, 100, 133, 166]),  # R4: nominal steps at the end, in whole ticks
    ],
)
def test_missing_and_repeated_times_are_repaired(
    pts: Sequence[int | None], nominal: Fraction, times: list[int]
) -> None:
    """R2 and R4, by the examples of docs/timeline.md."""
    assert list(repair(pts, nominal).times) == times


def test_ticks_are_divided_where_repeated_times_find_no_room() -> None:
    """R4: ticks are divided as finely as the most crowded time needs, but not below a nanosecond."""
    assert divisor_of([0, 0, 0, 100], MILLISECOND) == 1
    assert divisor_of([0, 1, 1, 1, 2, 2, 3, 3], MILLISECOND) == 3
    assert divisor_of([0, 1, 1, 1, 2], Fraction(1, 500_000_000)) == 2
    assert repair([0, 1, 1, 1, 2], FORTY_MS, divisor=3).times == (0, 3, 4, 5, 6)


def clock_offsets(dts: Sequence[int | None], nominal: Fraction = FORTY_MS) -> list[int]:
    """Return the offset of every packet's timestamps: rule R1 over a whole track in demux order."""
    clock = ResetClock(nominal, MILLISECOND)
    return [clock.advance(each) for each in dts]


@pytest.mark.parametrize(
    ("dts", "offsets"),
    [
        ((5000, 5040, 0, 40, 8000, 10), [0, 0, 5080, 5080, 5080, 13110]),
        ((5000, 4000, 4500), [0, 0, 0]),
        ((5000, 3999), [0, 1041]),
        ((9000, None, 9040), [0, 0, 0]),
    ],
)
def test_a_clock_reset_goes_on_where_the_clock_stood(dts: Sequence[int | None], offsets: list[int]) -> None:
    """R1: after a reset time continues one frame after the packet before; a step back by up to a second is no reset."""
    assert clock_offsets(dts) == offsets


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), nominals)
def test_a_repaired_clock_never_steps_back_by_more_than_a_second(dts: list[int], nominal: Fraction) -> None:
    """R1: no reset is left after the repair."""
    offsets = clock_offsets(dts, nominal)
    repaired = [d + offset for d, offset in zip(dts, offsets, strict=True)]
    assert all(earlier - later <= 1000 for earlier, later in pairwise(repaired))


def test_counts_say_what_was_repaired() -> None:
    """Every application of a rule is counted."""
    timeline = repair([0, 80, 40, None, 200], FORTY_MS)
    assert (timeline.missing, timeline.disordered, timeline.repeated) == (1, 1, 1)
