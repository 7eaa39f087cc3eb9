"""A keyframe is the first picture at or after each multiple of the interval, however the track is cut."""

from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.frame_rate import KeyframeGrid

INTERVALS = st.fractions(Fraction(1, 3), 400, max_denominator=1001)
TIMES = st.lists(st.integers(1, 900), max_size=80)


def shown(first: int, steps: list[int]) -> list[int]:
    """Return the times of pictures at this distance, from ``first`` on."""
    times = [first]
    for step in steps:
        times.append(times[-1] + step)
    return times


def keyframes(grid: KeyframeGrid, times: list[int]) -> list[int]:
    """Return the pictures that one encoder must encode as keyframes."""
    return [time for before, time in pairwise([None, *times]) if time is not None and grid.is_keyframe(time, before)]


@given(st.integers(-(10**12), 10**12), INTERVALS, TIMES)
def test_a_keyframe_is_the_first_picture_at_or_after_a_multiple(
    first: int, interval: Fraction, steps: list[int]
) -> None:
    """Every multiple of the interval has a keyframe, one may serve several, and there are no other keyframes."""
    times = shown(first, steps)
    multiples = range(ceil((times[-1] - first) / interval) + 1)
    wanted = {next((time for time in times if time - first >= floor(n * interval)), None) for n in multiples}
    assert keyframes(KeyframeGrid(first, interval), times) == sorted(time for time in wanted if time is not None)


@given(st.integers(-(10**6), 10**6), INTERVALS, TIMES, st.sets(st.integers(0, 200)))
def test_cuts_at_multiples_change_no_keyframe(first: int, interval: Fraction, steps: list[int], cuts: set[int]) -> None:
    """Each segment begins with a keyframe, and cuts at multiples of the interval move no keyframe of the track."""
    grid, times = KeyframeGrid(first, interval), shown(first, steps)
    ends = [*(grid.begins(cut) for cut in sorted(cuts)), times[-1] + 1]
    parts = [[t for t in times if begin <= t < end] for begin, end in pairwise([first, *ends])]
    assert [time for part in parts for time in keyframes(grid, part)] == keyframes(grid, times)


@given(st.integers(-(10**6), 10**6), INTERVALS, st.integers(0, 10**6))
def test_ticks_and_multiples_agree(first: int, interval: Fraction, after: int) -> None:
    """A multiple of the interval begins at the first tick at or after it, and no multiple is skipped."""
    grid, ticks = KeyframeGrid(first, interval), first + after
    multiple = grid.multiple(ticks)
    assert grid.begins(multiple) <= ticks < grid.begins(multiple + 1)
    following = grid.following(ticks)
    assert following == min(tick for tick in map(grid.begins, range(multiple, multiple + 3)) if tick >= ticks)
    assert grid.begins(grid.multiple(following)) == following


@given(st.integers(0, 10**5), st.integers(1, 600), st.integers(1, 40))
def test_rounded_times_move_no_keyframe(start: int, frames: int, every: int) -> None:
    """At 24 pictures per second, in rounded milliseconds, an interval of N pictures makes every N-th a keyframe."""
    times = [round(Fraction((start + n) * 1000, 24)) for n in range(frames)]
    grid = KeyframeGrid(times[0], Fraction(every * 1000, 24))
    assert keyframes(grid, times) == times[::every]
