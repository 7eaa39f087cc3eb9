"""Pictures and what becomes of them, the formula of actors/tensors/plan.py in whole numbers, and how near it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour
from codecfleet.actors.surfaces.frames import Frame
from codecfleet.actors.surfaces.scaling import ScaleFilter, Taps
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.actors.tensors.plan import TensorPlan, tensor_plan
from codecfleet.actors.tensors.sample_places import sample_places
from codecfleet.actors.tensors.tensor_format import TensorFormat

from .tensor_reference import KR_KB

COLOURS = st.builds(
    Colour,
    range=st.sampled_from([0, 1, 2]),
    matrix=st.sampled_from([2, *KR_KB]),
    chroma_location=st.integers(0, 6),
)
MOST = 1.25
"""In units of the last bit: half is rounding, the rest comes from the bits that are kept between the two axes."""
MOST_OF_SWSCALE = 2
"""The same for tensors that swscale resizes, without their first row and column."""
MOST_AT_FIRST = 70
"""The same for their first row and column: on both axes luma and chroma may lack 4.2 % of their weights."""
SIDES = st.integers(1, 40)


def tensor(frames: Sequence[Frame], format_: TensorFormat) -> Any:
    """Return a new tensor."""
    return to_tensor(frames, format_)


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """Return a picture's (width, height), and a part of it."""
    width, height = draw(SIDES), draw(SIDES)
    left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return (width, height), (left, top, draw(st.integers(1, width - left)), draw(st.integers(1, height - top)))


@dataclass(frozen=True)
class Case:
    """A picture of noise, and what becomes of which part of it."""

    pix_fmt: str
    window: tuple[tuple[int, int], tuple[int, int, int, int]]
    target: tuple[int, int] | None
    filter: ScaleFilter
    colour: Colour
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """The tensor's (width, height)."""
        return self.target or self.window[1][2:]


@st.composite
def whole_windows(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """Return a picture's (width, height), and a part of it that consists of whole samples of chroma."""
    left, top, wide, high = (2 * draw(half) for half in (*[st.integers(0, 9)] * 2, *[st.integers(8, 30)] * 2))
    after = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    return (left + wide + after[0], top + high + after[1]), (left, top, wide, high)


HALVED = st.sampled_from(["yuv420p", "yuv422p"])
BY_SWSCALE = st.builds(
    Case,
    pix_fmt=HALVED,
    window=windows() | whole_windows(),
    target=st.none(),
    filter=st.just(ScaleFilter.BILINEAR),
    colour=COLOURS,
    seed=st.integers(0, 99),
)
RESIZED_BY_SWSCALE = st.builds(
    Case,
    pix_fmt=HALVED,
    window=whole_windows(),
    target=st.tuples(st.integers(8, 90), st.integers(8, 90)),
    filter=st.just(ScaleFilter.BILINEAR),
    colour=COLOURS,
    seed=st.integers(0, 99),
)


def plan_of(case: Case, **options: Any) -> tuple[TensorPlan, TensorFormat]:
    """Return the plan for a case's picture, and the format."""
    size, crop = case.window
    format_ = TensorFormat(size=case.target, crop=crop, filter=case.filter, **options)
    places = sample_places(case.pix_fmt)
    assert places is not None
    return tensor_plan(places, size, case.colour, format_), format_


def check_near(differences: NDArray[Any], case: Case) -> None:
    """Check differences from exact values, in units of the last bit."""
    if case.size == case.window[1][2:] or not plan_of(case)[0].by_swscale:
        assert np.abs(differences).max() < MOST
        return
    moved = sum(case.size) / (1 << 17)  # how far the last sample's place is off, in source samples
    assert np.abs(differences[:, 1:, 1:]).max() < MOST_OF_SWSCALE + 255 * moved
    assert np.abs(differences).max() < MOST_AT_FIRST


def exact(samples: list[NDArray[Any]], plan: TensorPlan) -> NDArray[np.int64]:
    """Return the values of ``plan``'s formula, in whole numbers."""
    made = []
    for plane, taps in zip(samples, plan.taps, strict=False):
        down, across = matrix(taps.down), matrix(taps.across)
        whole = plane[: down.shape[1], : across.shape[1]].astype(np.int64)
        if plan.by_swscale:
            made.append((down @ (whole @ across.T >> 7) + (1 << 9)) >> 10)
        else:
            made.append(to_even(down @ whole, 12) @ across.T)
    bits = 9 if plan.by_swscale else 16
    centred = [each - (offset << bits) for each, offset in zip(made, plan.offsets, strict=True)]
    sums = np.array([sum(w * each for w, each in zip(weights, centred, strict=True)) for weights in plan.weights])
    values = (sums + (1 << 24)) >> 25 if plan.by_swscale else to_even(sums, 32)
    return values.clip(0, plan.largest)


def matrix(taps: Taps) -> NDArray[np.int64]:
    """Return taps as a matrix (targets, sources)."""
    found = np.zeros((len(taps.firsts), max(taps.firsts) + taps.count), np.int64)
    for row, first, weights in zip(found, taps.firsts, taps.weights, strict=True):
        row[first : first + taps.count] = weights
    return found


def to_even(sums: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Return sums over 2^bits, rounded to the nearest number, halves to the even one."""
    below, rest, half = sums >> bits, sums & ((1 << bits) - 1), 1 << (bits - 1)
    return below + ((rest > half) | ((rest == half) & (below % 2 == 1)))
