from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.join.rate_guard import LeakyBucket

BUCKET = LeakyBucket(size_bits=1_000_000, rate_bps=1_000_000)
FRAME_S = Fraction(1, 25)


def test_a_steady_stream_at_the_rate_keeps_its_level() -> None:
    """Pictures of exactly a frame's share of the rate leave the buffer as full as it was."""
    passage = BUCKET.pass_through(Fraction(900_000), [5000] * 50, [FRAME_S] * 50)
    assert passage.fullness_bits == 900_000
    assert passage.underflows == 0


def test_a_picture_larger_than_the_buffer_holds_is_an_underflow() -> None:
    """A picture that needs more bits than have arrived is late, and counted once."""
    passage = BUCKET.pass_through(Fraction(100_000), [20_000, 1], [FRAME_S] * 2)
    assert passage.underflows == 1
    assert passage.fullness_bits == 80_000 - 8


def test_the_buffer_never_overflows() -> None:
    """A variable-rate channel waits while the buffer is full."""
    assert BUCKET.pass_through(Fraction(1_000_000), [1] * 10, [Fraction(1)] * 10).fullness_bits == 1_000_000


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 1_000_000))
def test_a_track_may_be_simulated_in_parts(sizes: list[int], cut: int, fullness: int) -> None:
    """Passing the parts one after the other is passing the whole: what makes streaming the check right."""
    cut = min(cut, len(sizes))
    start = Fraction(fullness)
    whole = BUCKET.pass_through(start, sizes, [FRAME_S] * len(sizes))
    first = BUCKET.pass_through(start, sizes[:cut], [FRAME_S] * cut)
    second = BUCKET.pass_through(first.fullness_bits, sizes[cut:], [FRAME_S] * (len(sizes) - cut))
    assert second.fullness_bits == whole.fullness_bits
    assert first.underflows + second.underflows == whole.underflows


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=60), st.integers(0, 900_000), st.integers(0, 100_000))
def test_a_fuller_buffer_is_never_worse(sizes: list[int], fullness: int, more: int) -> None:
    """What fits from one level fits from any higher one: so an encode that assumed less is always safe."""
    low = BUCKET.pass_through(Fraction(fullness), sizes, [FRAME_S] * len(sizes))
    high = BUCKET.pass_through(Fraction(fullness + more), sizes, [FRAME_S] * len(sizes))
    assert high.underflows <= low.underflows
    assert high.fullness_bits >= low.fullness_bits
