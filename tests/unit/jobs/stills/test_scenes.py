"""Where scenes begin."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.walk import SegmentTally
from codecfleet.actors.stills.measuring import DIFFERENCE_MOST, MeasuredSegment, difference
from codecfleet.jobs.stills.scenes import MeasuredPictures, scene_starts


def _starts(percents: list[int], *, threshold: int = 10, shortest: int = 0) -> tuple[int, ...]:
    """Return where scenes begin, one picture a tick, given how much each differs from the one before."""
    differences = [percent * DIFFERENCE_MOST // 100 for percent in percents]
    return scene_starts(
        range(len(percents)), differences, threshold_percent=threshold, shortest_ticks=Fraction(shortest)
    )


def test_a_cut_begins_a_scene_and_movement_does_not() -> None:
    """What differs suddenly is a cut; what differs all the time is a pan, of which only the first step counts."""
    assert _starts([0, 1, 1, 30, 1, 1]) == (0, 3)
    assert _starts([0, 30, 30, 30, 30]) == (0, 1)
    assert _starts([0, 1, 1, 9, 1]) == (0,)
    assert _starts([0, 1, 1, 9, 1], threshold=7) == (0, 3)


def test_a_scene_has_its_shortest_length() -> None:
    """A cut that comes too soon after a scene's beginning is passed over."""
    assert _starts([0, 1, 30, 1, 1, 30, 1], shortest=3) == (0, 5)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=80), st.integers(1, 100), st.integers(0, 20))
def test_scenes_are_pictures_far_enough_apart(percents: list[int], threshold: int, shortest: int) -> None:
    """The first picture begins a scene, and no scene is shorter than was asked for."""
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
    """However the pictures are divided, each is compared with the one before it; empty segments change nothing."""
    grey = [np.full(8, level, dtype=np.uint8) for level in levels]
    places = sorted(min(cut, len(grey)) for cut in cuts)
    measured = MeasuredPictures()
    for number, (first, end) in enumerate(pairwise([0, *places, len(grey)])):
        measured.add(_segment(number, first, grey[first:end]))
    assert measured.times == list(range(len(levels)))
    assert measured.differences == [0, *(8 * abs(a - b) for a, b in pairwise(levels))]
