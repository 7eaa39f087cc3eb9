"""When stills are taken, and where scenes begin."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.actors.stills.measuring import DIFFERENCE_MOST, MeasuredSegment, difference
from codecfleet.errors import UsageError
from codecfleet.jobs.stills.moments import MeasuredPictures, Moment, at_middles, at_multiples, at_scenes, scene_starts
from codecfleet.jobs.stills.spec import STILLS_MOST

SECONDS = st.fractions(Fraction(1, 1000), 100, max_denominator=90_000)


def _covers(moments: tuple[Moment, ...], begin_s: Fraction, end_s: Fraction) -> bool:
    """Return whether the spans reach from beginning to end, and each contains its moment."""
    adjoin = all(left.end_s == right.begin_s for left, right in pairwise(moments))
    inside = all(each.begin_s <= each.at_s < each.end_s for each in moments)
    return adjoin and inside and (moments[0].begin_s, moments[-1].end_s) == (begin_s, end_s)


@given(SECONDS, SECONDS, SECONDS)
def test_multiples_are_exact(every_s: Fraction, begin_s: Fraction, length_s: Fraction) -> None:
    """Stills are taken exactly at the start plus each multiple of the step, before the end."""
    end_s = begin_s + min(length_s, every_s * 50)
    moments = at_multiples(every_s, begin_s, end_s)
    assert [each.at_s for each in moments] == [begin_s + n * every_s for n in range(len(moments))]
    assert moments[-1].at_s < end_s <= moments[-1].at_s + every_s
    assert _covers(moments, begin_s, end_s)


@given(st.integers(1, 60), SECONDS, SECONDS)
def test_middles_are_evenly_spaced(count: int, begin_s: Fraction, length_s: Fraction) -> None:
    """The moments are the middles of equal parts, as many as requested."""
    moments = at_middles(count, begin_s, begin_s + length_s)
    assert len(moments) == count
    assert all(each.at_s - each.begin_s == each.end_s - each.at_s == length_s / count / 2 for each in moments)
    assert _covers(moments, begin_s, begin_s + length_s)


@given(st.lists(SECONDS, min_size=1, unique=True))
def test_scenes_last_until_the_next(starts_s: list[Fraction]) -> None:
    """Each scene lasts until the next one begins."""
    starts_s.sort()
    moments = at_scenes(starts_s, starts_s[-1] + 1)
    assert [each.at_s for each in moments] == starts_s
    assert _covers(moments, starts_s[0], starts_s[-1] + 1)


@given(st.integers(-(10**12), 10**12), st.fractions(Fraction(1, 10**6), 1), SECONDS)
def test_a_moment_is_the_latest_tick_not_after_it(first: int, time_base: Fraction, at_s: Fraction) -> None:
    """No float comes between a moment and the source's clock."""
    ticks = Moment(at_s, at_s, at_s).ticks(first, time_base)
    assert (ticks - first) * time_base <= at_s < (ticks - first + 1) * time_base


def test_too_many_are_refused() -> None:
    """Too short a step is refused in one line before any work."""
    with pytest.raises(UsageError, match="more than 100,000"):
        at_multiples(Fraction(1, 1000), Fraction(0), Fraction(STILLS_MOST + 1, 1000))
    with pytest.raises(UsageError, match="more than 100,000"):
        at_scenes([Fraction(n) for n in range(STILLS_MOST + 1)], Fraction(STILLS_MOST + 1))


def _starts(percents: list[int], *, threshold: int = 10, shortest: int = 0) -> tuple[int, ...]:
    """Return where scenes begin, at one picture a tick, given each one's difference from the previous picture."""
    differences = [percent * DIFFERENCE_MOST // 100 for percent in percents]
    return scene_starts(
        range(len(percents)), differences, threshold_percent=threshold, shortest_ticks=Fraction(shortest)
    )


def test_a_cut_begins_a_scene_and_movement_does_not() -> None:
    """A sudden difference is a cut; constant difference is a pan, of which only the first step counts."""
    assert _starts([0, 1, 1, 30, 1, 1]) == (0, 3)
    assert _starts([0, 30, 30, 30, 30]) == (0, 1)
    assert _starts([0, 1, 1, 9, 1]) == (0,)
    assert _starts([0, 1, 1, 9, 1], threshold=7) == (0, 3)
    # A cut too soon after a scene's beginning is skipped.
    assert _starts([0, 1, 30, 1, 1, 30, 1], shortest=3) == (0, 5)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=80), st.integers(1, 100), st.integers(0, 20))
def test_scenes_are_pictures_far_enough_apart(percents: list[int], threshold: int, shortest: int) -> None:
    """The first picture begins a scene, and no scene is shorter than requested."""
    starts = _starts([0, *percents[1:]], threshold=threshold, shortest=shortest)
    assert starts[0] == 0
    assert all(right - left >= max(shortest, 1) for left, right in pairwise(starts))


def _segment(number: int, first: int, grey: list[np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> MeasuredSegment:
    empty = np.empty(0, dtype=np.uint8)
    return MeasuredSegment(
        segment=number,
        pts_ticks=np.arange(first, first + len(grey), dtype=np.int64),
        differences=np.array([difference(a, b) for a, b in pairwise(grey)], dtype=np.int64),
        first=grey[0] if grey else empty,
        last=grey[-1] if grey else empty,
        frames_decoded=len(grey),
        tally=SegmentTally(),
    )


@given(st.lists(st.integers(0, 255), min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=8))
def test_the_measure_does_not_know_of_cuts(levels: list[int], cuts: list[int]) -> None:
    """However the pictures are divided into segments, each is compared with the previous one."""
    grey = [np.full(8, level, dtype=np.uint8) for level in levels]
    places = sorted(min(cut, len(grey)) for cut in cuts)
    measured = MeasuredPictures()
    for number, (first, end) in enumerate(pairwise([0, *places, len(grey)])):
        measured.add(_segment(number, first, grey[first:end]))
    assert measured.times == list(range(len(levels)))
    assert measured.differences == [0, *(8 * abs(a - b) for a, b in pairwise(levels))]
