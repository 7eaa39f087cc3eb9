"""Taps: what they sum to, where they lie, and that nothing drifts, whatever the sizes."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.surfaces.scaling import LUMA, ONE, ChromaLocation, Lattice, ScaleFilter, Taps, taps

FILTERS = st.sampled_from(ScaleFilter)
LATTICES = st.sampled_from(
    [LUMA, *(location.across(halved=True) for location in ChromaLocation)]
    + [location.down(halved=True) for location in ChromaLocation]
)
SIZES = st.integers(1, 150).map(lambda half: 2 * half)
SAMPLES_MOST = 1 << 12
MAGNITUDE_MOST = 1.6
"""Of a target's weights, summed: ``conversion`` proves with it that no sum overflows."""


def scaled(samples: list[int], each: Taps) -> list[Fraction]:
    """Return what samples become, unrounded."""
    return [
        Fraction(sum(weight * samples[first + tap] for tap, weight in enumerate(weights)), ONE)
        for first, weights in zip(each.firsts, each.weights, strict=True)
    ]


@given(source=SIZES, target=SIZES, filter_=FILTERS, lattices=st.tuples(LATTICES, LATTICES))
def test_weights_sum_to_one_and_stay_inside(
    source: int, target: int, filter_: ScaleFilter, lattices: tuple[Lattice, Lattice]
) -> None:
    """Each target has equally many weights, which sum to one exactly, of samples that exist, and none is wild."""
    found = taps(source, target, filter_, *lattices)
    assert len(found.firsts) == len(found.weights) == target // lattices[1].spacing
    for first, weights in zip(found.firsts, found.weights, strict=True):
        assert len(weights) == found.count
        assert sum(weights) == ONE
        assert sum(map(abs, weights)) <= MAGNITUDE_MOST * ONE
        assert first >= 0
        assert first + found.count <= source // lattices[0].spacing


@given(source=SIZES, target=SIZES, filter_=FILTERS, level=st.integers(0, SAMPLES_MOST))
def test_a_constant_stays_constant(source: int, target: int, filter_: ScaleFilter, level: int) -> None:
    """A picture of one level has that level at any size."""
    assert set(scaled([level] * source, taps(source, target, filter_))) == {level}


@given(size=SIZES, filter_=FILTERS, lattice=LATTICES)
def test_the_same_size_is_the_same_samples(size: int, filter_: ScaleFilter, lattice: Lattice) -> None:
    """Where nothing moves, no filter changes anything."""
    assert taps(size, size, filter_, lattice, lattice).is_identity


@given(source=SIZES, target=SIZES, filter_=FILTERS, samples=st.randoms(use_true_random=False))
def test_a_mirrored_picture_becomes_a_mirrored_picture(
    source: int, target: int, filter_: ScaleFilter, samples: Random
) -> None:
    """Luma has no preferred end: not one bit differs."""
    found = taps(source, target, filter_)
    row = [samples.randrange(SAMPLES_MOST) for _ in range(source)]
    assert scaled(row[::-1], found) == scaled(row, found)[::-1]


@given(source=st.integers(8, 300), target=st.integers(8, 300), filter_=FILTERS)
def test_a_ramp_keeps_its_ends_and_its_middle(source: int, target: int, filter_: ScaleFilter) -> None:
    """A ramp over the picture is the same ramp afterwards: it does not drift to a side, least of all in the end."""
    found = scaled([1000 * (2 * place + 1) for place in range(source)], taps(source, target, filter_))
    ratio = Fraction(source, target)
    margin = int(filter_.reach * max(1, 1 / ratio)) + 1
    inside = range(margin, target - margin)
    # A tenth of a sample: only ideal filters pass ramps through exactly.
    tolerance = 200 * max(1, ratio)
    for place in inside:
        assert abs(found[place] - 1000 * (2 * place + 1) * ratio) <= tolerance
    assert found[0] + found[-1] == 1000 * 2 * source


@pytest.mark.parametrize("filter_", ScaleFilter)
def test_what_is_too_fine_does_not_fold_into_the_picture(filter_: ScaleFilter) -> None:
    """Alternating samples become grey when there is no room for them, not a pattern of their own."""
    found = scaled([0, 200] * 60, taps(120, 40, filter_))
    inside = found[3:-3]
    assert max(inside) - min(inside) < 30
    assert all(abs(value - 100) < 15 for value in inside)


def test_chroma_moves_to_where_the_target_has_it() -> None:
    """A ramp sampled where chroma lies on the left comes out as that ramp sampled amid the columns."""
    left, center = ChromaLocation.LEFT.across(halved=True), ChromaLocation.CENTER.across(halved=True)
    ramp = [int(100 * (left.first + left.spacing * place)) for place in range(16)]
    found = scaled(ramp, taps(32, 32, ScaleFilter.BILINEAR, left, center))
    assert found[:-1] == [100 * (center.first + center.spacing * place) for place in range(15)]
    assert found[-1] == ramp[-1]


def test_sites_are_those_of_the_standard() -> None:
    """Types 0 to 5 of H.273 are FFmpeg's 1 to 6: left, centre, top left, top, bottom left, bottom."""
    sites = [(location.across(halved=True).first, location.down(halved=True).first) for location in ChromaLocation]
    half, one, more = Fraction(1, 2), Fraction(1), Fraction(3, 2)
    assert sites == [(half, one), (one, one), (half, half), (one, half), (half, more), (one, more)]
    assert ChromaLocation.BOTTOM.across(halved=False) == ChromaLocation.BOTTOM.down(halved=False) == LUMA


def test_known_weights() -> None:
    """Half-way between two samples, and a halving on even samples: the filters' own values, as fractions of one."""
    bilinear = taps(64, 64, ScaleFilter.BILINEAR, LUMA, ChromaLocation.LEFT.across(halved=True))
    assert bilinear.weights[5] == (ONE // 4, ONE // 2, ONE // 4)
    cubic = taps(64, 64, ScaleFilter.BICUBIC, ChromaLocation.CENTER.across(halved=True), LUMA)
    # A quarter from a sample, at a = -0.6.
    expected = [Fraction(-27, 320), Fraction(279, 320), Fraction(77, 320), Fraction(-9, 320)]
    assert all(abs(weight - want * ONE) <= 1 for weight, want in zip(cubic.weights[9], expected, strict=True))
    lanczos = taps(64, 128, ScaleFilter.LANCZOS).weights[64]
    # 3 sin(pi x) sin(pi x / 3) / (pi x)^2 at quarters, over what they sum to.
    expected_parts = (0.00738, -0.06800, 0.27101, 0.89277, -0.13327, 0.03011)
    assert [round(weight / ONE, 5) for weight in lanczos] == pytest.approx(expected_parts, abs=4e-5)


def test_sizes_that_have_no_whole_samples_are_refused() -> None:
    """An odd size has no halved chroma, and no size no samples."""
    with pytest.raises(ValueError, match="no whole number"):
        taps(7, 8, ScaleFilter.BICUBIC, ChromaLocation.LEFT.across(halved=True), LUMA)
    with pytest.raises(ValueError, match="no whole number"):
        taps(8, 0, ScaleFilter.BICUBIC)
