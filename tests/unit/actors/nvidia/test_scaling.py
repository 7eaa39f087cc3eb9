"""Taps: their sums and positions, and that pictures do not shift, for any sizes."""

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
"""The limit of the sum of a target's absolute weights, with which ``conversion`` shows that no sum overflows."""


def scaled(samples: list[int], each: Taps) -> list[Fraction]:
    """Return the target samples, not rounded."""
    return [
        Fraction(sum(weight * samples[first + tap] for tap, weight in enumerate(weights)), ONE)
        for first, weights in zip(each.firsts, each.weights, strict=True)
    ]


@given(source=SIZES, target=SIZES, filter_=FILTERS, lattices=st.tuples(LATTICES, LATTICES))
def test_weights_sum_to_one_and_stay_inside(
    source: int, target: int, filter_: ScaleFilter, lattices: tuple[Lattice, Lattice]
) -> None:
    """All targets have equally many weights, which sum to exactly one, are limited, and belong to existing samples."""
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
    """A picture of one level keeps this level at any size."""
    assert set(scaled([level] * source, taps(source, target, filter_))) == {level}


@given(size=SIZES, filter_=FILTERS, lattice=LATTICES)
def test_the_same_size_is_the_same_samples(size: int, filter_: ScaleFilter, lattice: Lattice) -> None:
    """Scaling to the same size changes nothing."""
    assert taps(size, size, filter_, lattice, lattice).is_identity


@given(source=SIZES, target=SIZES, filter_=FILTERS, samples=st.randoms(use_true_random=False))
def test_a_mirrored_picture_becomes_a_mirrored_picture(
    source: int, target: int, filter_: ScaleFilter, samples: Random
) -> None:
    """Mirroring commutes with scaling of luma, bit for bit."""
    found = taps(source, target, filter_)
    row = [samples.randrange(SAMPLES_MOST) for _ in range(source)]
    assert scaled(row[::-1], found) == scaled(row, found)[::-1]


def test_sizes_that_have_no_whole_samples_are_refused() -> None:
    """An odd size cannot have halved chroma, and an empty size has no samples."""
    with pytest.raises(ValueError, match="no whole number"):
        taps(7, 8, ScaleFilter.BICUBIC, ChromaLocation.LEFT.across(halved=True), LUMA)
    with pytest.raises(ValueError, match="no whole number"):
        taps(8, 0, ScaleFilter.BICUBIC)
