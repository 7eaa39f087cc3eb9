"""What is taken from a growing source depends on nothing that comes later."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.frame_rate import KeyframeGrid
from codecfleet.jobs.follow.windows import Window, final_segments, next_window
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.source.index import TrackIndex

from ..source.test_index_and_cuts import index_of

SEGMENT_S = Fraction(2)


def _ends(index: TrackIndex) -> list[int | None]:
    grid = KeyframeGrid(index.first_ticks, Fraction(1, 2) / index.time_base)
    ranges = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=SEGMENT_S, grid=grid)
    final = final_segments(index, ranges.segments, SEGMENT_S)
    return [each.end_ticks for each in ranges.segments[:final]]


@given(
    steps=st.lists(st.sampled_from([20, 40, 40, 41, 300]), min_size=2, max_size=400),
    keys=st.sets(st.integers(1, 400), max_size=40),
    parts=st.lists(st.integers(2, 400), min_size=1, max_size=3),
)
def test_segments_taken_from_any_beginning_are_those_of_the_whole(
    steps: list[int], keys: set[int], parts: list[int]
) -> None:
    """A beginning of a source has the first segments of the whole."""
    times = [0]
    for step in steps:
        times.append(times[-1] + step)

    def beginning(packets: int) -> TrackIndex:
        shown = times[:packets]
        return index_of(shown, {0, *(key for key in keys if key < len(shown))})

    whole = beginning(len(times))
    grid = KeyframeGrid(whole.first_ticks, Fraction(1, 2) / whole.time_base)
    due = [
        each.end_ticks
        for each in TrackRanges.cut(whole, start_s=None, end_s=None, segment_s=SEGMENT_S, grid=grid).segments
    ]
    for packets in parts:
        found = _ends(beginning(packets))
        assert found == due[: len(found)]


def test_a_window_takes_what_is_final_and_at_the_end_everything() -> None:
    """An ended source has no segment that could still change."""
    assert next_window(taken=0, final=0, planned=1, is_over=False, most=4) is None
    assert next_window(taken=1, final=3, planned=5, is_over=False, most=4) == Window(1, 3)
    assert next_window(taken=1, final=3, planned=5, is_over=False, most=1) == Window(1, 2)
    assert next_window(taken=3, final=3, planned=5, is_over=True, most=4) == Window(3, 5, is_last=True)
    assert next_window(taken=3, final=3, planned=5, is_over=True, most=1) == Window(3, 4)
    assert next_window(taken=5, final=5, planned=5, is_over=True, most=4) is None
