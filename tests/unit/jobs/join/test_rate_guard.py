from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.join.rate_guard import LeakyBucket, Passage

BUCKET = LeakyBucket(size_bits=1_000_000, rate_bps=1_000_000)
FRAME_S = Fraction(1, 25)


@pytest.mark.parametrize(
    ("fullness", "sizes", "duration_s", "after"),
    [
        (900_000, [5000] * 50, FRAME_S, Passage(Fraction(900_000), 0)),  # exactly the rate
        (100_000, [20_000, 1], FRAME_S, Passage(Fraction(80_000 - 8), 1)),  # one late picture, counted once
        # the channel waits while the buffer is full
        (1_000_000, [1] * 10, Fraction(1), Passage(Fraction(1_000_000), 0)),
    ],
)
def test_pictures_leave_the_buffer_and_bits_arrive(
    fullness: int, sizes: list[int], duration_s: Fraction, after: Passage
) -> None:
    """A steady stream keeps the level, missing bits are an underflow, and the buffer never overflows."""
    assert BUCKET.pass_through(Fraction(fullness), sizes, [duration_s] * len(sizes)) == after


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 1_000_000))
def test_a_track_may_be_simulated_in_parts(sizes: list[int], cut: int, fullness: int) -> None:
    """Passing the parts one after the other equals passing the whole."""
    cut = min(cut, len(sizes))
    start = Fraction(fullness)
    whole = BUCKET.pass_through(start, sizes, [FRAME_S] * len(sizes))
    first = BUCKET.pass_through(start, sizes[:cut], [FRAME_S] * cut)
    second = BUCKET.pass_through(first.fullness_bits, sizes[cut:], [FRAME_S] * (len(sizes) - cut))
    assert second.fullness_bits == whole.fullness_bits
    assert first.underflows + second.underflows == whole.underflows


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=60), st.integers(0, 900_000), st.integers(0, 100_000))
def test_a_fuller_buffer_is_never_worse(sizes: list[int], fullness: int, more: int) -> None:
    """What fits from one level fits from any higher level, so assuming less is safe."""
    low = BUCKET.pass_through(Fraction(fullness), sizes, [FRAME_S] * len(sizes))
    high = BUCKET.pass_through(Fraction(fullness + more), sizes, [FRAME_S] * len(sizes))
    assert high.underflows <= low.underflows
    assert high.fullness_bits >= low.fullness_bits
