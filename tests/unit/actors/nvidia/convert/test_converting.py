"""Conversion of surfaces: the reference compared with plain arithmetic and with swscale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.surfaces.conversion import Conversion
from codecfleet.actors.surfaces.host_scaling import converted
from codecfleet.actors.surfaces.scaling import ChromaLocation, ScaleFilter
from codecfleet.errors import Unsupported
from tests.device.conversion_cases import FORMATS

from ..conversion_surfaces import planes_of, random_surface

NV12, P016 = FORMATS["yuv420p"], FORMATS["yuv420p10le"]


def weight(filter_: ScaleFilter, distance: Fraction) -> Fraction:
    """Return a filter's value by its textbook formula."""
    x, a = abs(distance), Fraction(-3, 5)
    if filter_ is ScaleFilter.BILINEAR:
        return max(Fraction(0), 1 - x)
    if filter_ is ScaleFilter.BICUBIC:
        if x < 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else Fraction(0)
    if x in {0, 1, 2} or x >= 3:
        return Fraction(x == 0)
    angle = math.pi * float(x)
    return Fraction(round(3 * math.sin(angle) * math.sin(angle / 3) / angle**2 * (1 << 40)), 1 << 40)


@dataclass(frozen=True)
class Position:
    """The weights of the source's samples in a target sample; the source's first and last samples repeat outside."""

    weights: dict[int, Fraction]

    @classmethod
    def at(cls, position: Fraction, widening: Fraction, count: int, filter_: ScaleFilter) -> "Position":
        """Weigh everything within reach."""
        reach, middle = math.ceil(3 * widening) + 1, math.floor(position)
        weights: dict[int, Fraction] = {}
        for place in range(middle - reach, middle + reach + 1):
            inside = min(max(place, 0), count - 1)
            weights[inside] = weights.get(inside, Fraction()) + weight(filter_, (place - position) / widening)
        total = sum(weights.values())
        return cls({place: each / total for place, each in weights.items() if each})

    def of(self, line: Sequence[Fraction]) -> Fraction:
        """Return the value there."""
        return sum((each * line[place] for place, each in self.weights.items()), Fraction())


def positions(
    sizes: tuple[int, int], steps: tuple[int, int], firsts: tuple[Fraction, Fraction], filter_: ScaleFilter
) -> list[Position]:
    """Return the positions of an axis's target samples; pairs are (of the source, of the target)."""
    found = []
    widening = max(Fraction(1), Fraction(sizes[0] * steps[1], sizes[1] * steps[0]))
    for number in range(sizes[1] // steps[1]):
        in_picture = (firsts[1] + number * steps[1]) * sizes[0] / sizes[1]
        position = (in_picture - firsts[0]) / steps[0]
        found.append(Position.at(position, widening, sizes[0] // steps[0], filter_))
    return found


def plainly(plane: NDArray[np.int64], conversion: Conversion, *, is_chroma: bool) -> list[list[Fraction]]:
    """Return a plane's target samples in the source's levels, computed one by one from the definitions."""
    source, target = conversion.source, conversion.target
    here, there = conversion.source_location, conversion.target_location
    (wide, high), (wider, higher) = conversion.source_size, conversion.target_size
    halved = source.halved_across and is_chroma, target.halved_across and is_chroma
    firsts = _first(_column(here), halved=halved[0]), _first(_column(there), halved=halved[1])
    across = positions((wide, wider), (1 + halved[0], 1 + halved[1]), firsts, conversion.filter)
    halved = source.halved_down and is_chroma, target.halved_down and is_chroma
    firsts = _first(_row(here), halved=halved[0]), _first(_row(there), halved=halved[1])
    down = positions((high, higher), (1 + halved[0], 1 + halved[1]), firsts, conversion.filter)
    rows = [[each.of(row) for each in across] for row in plane.tolist()]
    columns = [[each.of(column) for each in down] for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _first(site: Fraction, *, halved: bool) -> Fraction:
    return site if halved else Fraction(1, 2)


def _column(location: ChromaLocation) -> Fraction:
    return Fraction(1, 2) if location.name.endswith("LEFT") else Fraction(1)


def _row(location: ChromaLocation) -> Fraction:
    return {"T": Fraction(1, 2), "B": Fraction(3, 2)}.get(location.name[0], Fraction(1))


@st.composite
def tiny_conversions(draw: st.DrawFn) -> Conversion:
    """Draw a conversion of a few samples."""
    sides = st.integers(1, 4).map(lambda half: 2 * half)
    return Conversion(
        source=draw(st.sampled_from([*FORMATS.values()])),
        source_size=draw(st.tuples(sides, sides)),
        target=draw(st.sampled_from([*FORMATS.values()])),
        target_size=draw(st.tuples(sides, sides)),
        filter=draw(st.sampled_from(ScaleFilter)),
        source_location=draw(st.sampled_from(ChromaLocation)),
        target_location=draw(st.sampled_from(ChromaLocation)),
    )


@settings(max_examples=60)
@given(conversion=tiny_conversions(), seed=st.integers(0, 1 << 32))
def test_the_reference_is_plain_arithmetic_rounded(conversion: Conversion, seed: int) -> None:
    """Each sample follows the definitions, except for the rounding of weights and of the target's bits."""
    surface = random_surface(conversion, seed)
    before = planes_of(surface, conversion.source, conversion.source_size)
    after = planes_of(converted(conversion, surface), conversion.target, conversion.target_size)
    scale = Fraction(2) ** (conversion.target.bits - conversion.source.bits)
    largest = (1 << conversion.target.bits) - 1
    for number, (plane, found) in enumerate(zip(before, after, strict=True)):
        exact = plainly(plane, conversion, is_chroma=number > 0)
        assert found.shape == (len(exact), len(exact[0]))
        for row, wanted in zip(found.tolist(), exact, strict=True):
            for sample, want in zip(row, wanted, strict=True):
                clipped = min(max(want * scale, Fraction(0)), Fraction(largest))
                assert abs(sample - clipped) <= Fraction(1, 2) + Fraction(largest, 4000)


@pytest.mark.parametrize("source", FORMATS)
def test_other_bits_alone(source: str) -> None:
    """More bits are exact; fewer bits are rounded half up and limited; padding bits do not count."""
    for target in (each for each in FORMATS.values() if each.chroma == FORMATS[source].chroma):
        conversion = Conversion(source=FORMATS[source], source_size=(16, 8), target=target, target_size=(16, 8))
        surface = random_surface(conversion, target.bits)
        before = planes_of(surface, conversion.source, (16, 8))
        after = planes_of(converted(conversion, surface), target, (16, 8))
        for plane, found in zip(before, after, strict=True):
            exact = plane * 2.0 ** (target.bits - conversion.source.bits)
            assert np.array_equal(found, np.minimum(np.floor(exact + 0.5), (1 << target.bits) - 1))
        assert (conversion.name == "") == conversion.is_identity == (target == FORMATS[source])


def test_an_identity_is_a_copy() -> None:
    """If format, size and chroma positions stay the same, all bytes do, even padding bits, and no memory is used."""
    conversion = Conversion(
        source=P016, source_size=(8, 4), target=P016, target_size=(8, 4), filter=ScaleFilter.LANCZOS
    )
    surface = random_surface(conversion, 3)
    assert conversion.is_identity
    assert conversion.scratch_bytes == 0
    assert np.array_equal(converted(conversion, surface), surface)
    with pytest.raises(ValueError, match="the surface has"):
        converted(conversion, surface[1:])


def test_moving_chroma_is_no_identity() -> None:
    """Moving chroma is a conversion, even with the same format and size; chroma at full resolution has one position."""
    moved = Conversion(
        source=NV12, source_size=(8, 4), target=NV12, target_size=(8, 4), target_location=ChromaLocation.TOP_LEFT
    )
    assert [plan.is_scaled for plan in moved.plans()] == [False, True, True]
    whole = FORMATS["yuv444p"]
    assert Conversion(
        source=whole, source_size=(8, 4), target=whole, target_size=(8, 4), target_location=ChromaLocation.TOP
    ).is_identity


def test_a_name_tells_all_that_decides_a_bit() -> None:
    """The name in the encoder kind has version, filter, and size, layout, bits and chroma position of both sides."""
    conversion = Conversion(
        source=P016,
        source_size=(1920, 1080),
        target=FORMATS["yuv444p"],
        target_size=(1280, 720),
        filter=ScaleFilter.LANCZOS,
        source_location=ChromaLocation.TOP_LEFT,
    )
    assert conversion.name == "device-scaling-1 lanczos 1920x1080 P016/10 top_left to 1280x720 YUV444/8"


@pytest.mark.parametrize("size", [(0, 2), (2, -2), (3, 2), (2, 3)])
def test_sizes_that_no_surface_has_are_refused(size: tuple[int, int]) -> None:
    """Both sizes of a conversion of 4:2:0 must be even."""
    with pytest.raises(Unsupported, match="no NV12 surface can be"):
        Conversion(source=NV12, source_size=size, target=NV12, target_size=(2, 2))
    with pytest.raises(Unsupported, match="no NV12 surface can be"):
        Conversion(source=NV12, source_size=(2, 2), target=NV12, target_size=size)
