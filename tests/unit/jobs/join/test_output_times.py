from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import ProofFailed
from codecfleet.jobs.join.output_times import OutputTimes, decoding_lead

TB = Fraction(1, 30000)


def times(
    reorder: int = 2,
    *,
    tick: Fraction = TB,
    origin_s: Fraction = Fraction(0),
    lead: int | None = None,
    last: int = 1001,
    counts_decoding: bool = False,
) -> OutputTimes:
    """Return fresh output times of a 30000 Hz source."""
    return OutputTimes(
        source_time_base=TB,
        output_tick=tick,
        origin_s=origin_s,
        reorder_frames=reorder,
        lead_ticks=Fraction(reorder * 1001 if lead is None else lead),
        last_shown_ticks=lambda _: Fraction(last),
        counts_decoding=counts_decoding,
    )


def test_decoding_times_have_the_distances_of_the_pictures() -> None:
    """At a constant rate, packets are decoded one picture apart, the reorder delay ahead of the pictures."""
    packets = times(2).segment([0, 3003, 1001, 2002, 4004], None)
    assert [p.pts for p in packets] == [0, 3003, 1001, 2002, 4004]
    assert [p.dts for p in packets] == [-2002, -1001, 0, 1001, 2002]
    assert [p.duration for p in packets] == [1001] * 5


def test_a_gap_delays_decoding_no_further_than_pictures_allow() -> None:
    """After a gap longer than the lead, a packet decodes when the picture before the reorder delay is shown."""
    packets = times(1).segment([0, 1001, 2002, 9009, 10010], None)
    assert [p.dts for p in packets] == [-1001, 0, 1001, 2002, 9009]


def test_the_last_packet_makes_up_the_track() -> None:
    """If durations are distances of decoding, their sum is the time from the first picture to the last one's end."""
    slides = [0, 90_000, 15_000, 60_000]
    packets = times(2, lead=75_000, last=150_000, counts_decoding=True).segment(slides, None)
    decoded = [*(p.dts for p in packets), packets[-1].dts + packets[-1].duration]
    assert [b - a for a, b in pairwise(decoded)] == [15_000, 45_000, 30_000, 150_000]
    shown = times(2, lead=75_000, last=150_000).segment(slides, None)
    assert {p.pts: p.duration for p in shown} == {0: 15_000, 15_000: 45_000, 60_000: 30_000, 90_000: 150_000}


@pytest.mark.parametrize(
    ("shown", "reorder", "lead"),
    [
        ([0, 40, 80, 120], 2, 80),
        ([0, 33, 67, 100, 133], 2, 67),
        ([0, 40, 80, 120, 160, 400, 440, 480], 1, 40),
        ([0, 40, 80, 120, 160, 200, 240, 1000], 1, 800 - 40),
        ([0, 40, 80, 120, 160, 200, 240, 20_000], 1, 40),
        ([0, 500], 2, 1000),
        ([7], 2, 80),
        ([0, 40, 80], 0, 0),
    ],
)
def test_the_lead_is_as_long_as_the_delayed_pictures(shown: list[int], reorder: int, lead: int) -> None:
    """The lead is the usual time of the reordered pictures; the last ones count up to ten seconds."""
    assert decoding_lead(np.array(shown), reorder, Fraction(40), Fraction(1, 1000)) == lead


def test_a_tick_too_coarse_is_refused() -> None:
    """Two pictures that would share a tick of the container are an error, never a silent loss."""
    with pytest.raises(ProofFailed, match="same tick"):
        times(0, tick=Fraction(1, 10)).segment([0, 1001], None)


def test_pictures_shown_before_they_decode_are_refused() -> None:
    """An encoder that reorders more than its parameter sets state is an error."""
    with pytest.raises(ProofFailed, match="after it is shown"):
        times(0).segment([2002, 1001, 0], None)


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=80),
    st.integers(0, 4),
    st.integers(1, 20),
    st.integers(-5000, 5000),
    st.integers(0, 9000),
)
def test_any_split_gives_the_same_times(steps: list[int], reorder: int, size: int, start: int, lead: int) -> None:
    """However the track is split, DTS increase, are never after PTS, and equal those of an unsplit run."""
    shown = [start + sum(steps[:n]) for n in range(len(steps))]
    origin_s = start * TB
    given_times = partial(times, reorder, origin_s=origin_s, lead=lead, last=steps[-1], counts_decoding=True)
    whole = given_times().segment(shown, None)
    parts = given_times()
    joined = []
    for at in range(0, len(shown), size):
        following = shown[at + size] if at + size < len(shown) else None
        joined += parts.segment(shown[at : at + size], following)
    assert joined == whole
    assert all(a.dts < b.dts for a, b in pairwise(joined))
    assert all(p.dts <= p.pts and p.duration > 0 for p in joined)
    assert joined[0].pts == 0
    assert joined[-1].pts + joined[-1].duration <= sum(steps)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=80), st.integers(0, 4))
def test_samples_last_as_long_as_pictures(steps: list[int], reorder: int) -> None:
    """If the lead is computed from a track's own times, its samples together last as long as its pictures."""
    shown = [sum(steps[:n]) for n in range(len(steps))]
    lead = int(decoding_lead(np.array(shown), reorder, Fraction(1001), TB))
    packets = times(reorder, lead=lead, last=steps[-1], counts_decoding=True).segment(shown, None)
    decoded = [*(p.dts for p in packets), packets[-1].dts + packets[-1].duration]
    assert decoded[-1] - decoded[0] == sum(steps) or reorder > lead
    assert len(steps) <= reorder or all(b - a <= max(steps) for a, b in pairwise(decoded[reorder:]))
