from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import ProofFailed
from codecfleet.jobs.join.output_times import OutputTimes

TB = Fraction(1, 30000)


def times(reorder: int = 2, *, tick: Fraction = TB, origin_s: Fraction = Fraction(0)) -> OutputTimes:
    """Return fresh output times of a 30000 Hz source."""
    return OutputTimes(
        source_time_base=TB,
        output_tick=tick,
        origin_s=origin_s,
        reorder_frames=reorder,
        last_duration_ticks=Fraction(1001),
    )


def test_decoding_times_lag_by_the_reorder_delay() -> None:
    """The first packets decode just before the first picture is shown; later ones when an earlier one is shown."""
    packets = times(2).segment([0, 3003, 1001, 2002, 4004], None)
    assert [p.pts for p in packets] == [0, 3003, 1001, 2002, 4004]
    assert [p.dts for p in packets] == [-2, -1, 0, 1001, 2002]
    assert [p.duration for p in packets] == [1001] * 5


def test_segments_continue_each_other() -> None:
    """A later segment's decoding times go on from the earlier one's, and durations reach across the cut."""
    joined = times(1)
    first = joined.segment([0, 1001], 2502)
    second = joined.segment([2502, 3503], None)
    assert [p.duration for p in first + second] == [1001, 1501, 1001, 1001]
    assert [p.dts for p in first + second] == [-1, 0, 1001, 2502]


def test_a_tick_too_coarse_is_refused() -> None:
    """Two pictures that would share a tick of the container are an error, never a silent loss."""
    with pytest.raises(ProofFailed, match="same tick"):
        times(0, tick=Fraction(1, 10)).segment([0, 1001], None)


def test_pictures_shown_before_they_decode_are_refused() -> None:
    """An encoder that reorders further than its parameter sets state is caught."""
    with pytest.raises(ProofFailed, match="after it is shown"):
        times(0).segment([2002, 1001, 0], None)


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=80),
    st.integers(0, 4),
    st.integers(1, 20),
    st.integers(-5000, 5000),
)
def test_any_split_gives_the_same_times(steps: list[int], reorder: int, size: int, start: int) -> None:
    """Joined in segments of any length, DTS are monotonic, never after PTS, and those of one unsegmented run."""
    shown = [start + sum(steps[:n]) for n in range(len(steps))]
    origin_s = start * TB
    whole = times(reorder, origin_s=origin_s).segment(shown, None)
    parts = times(reorder, origin_s=origin_s)
    joined = []
    for at in range(0, len(shown), size):
        following = shown[at + size] if at + size < len(shown) else None
        joined += parts.segment(shown[at : at + size], following)
    assert joined == whole
    assert all(a.dts < b.dts for a, b in pairwise(joined))
    assert all(p.dts <= p.pts and p.duration > 0 for p in joined)
    assert joined[0].pts == 0
