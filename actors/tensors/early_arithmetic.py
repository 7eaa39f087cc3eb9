"""Carries out ``EarlyColour`` on the host, in arrays of 16-bit integers, which NumPy adds many at a time.

Even and odd columns are in separate arrays, and so are even and odd rows, so that each operation works on adjoining
memory. Two neighbouring samples of a row are the low and the high byte of a 16-bit word.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from ..surfaces.scaling import Lattice
from .host_memory import Array, scratch
from .plan import EARLY_BITS, TensorPlan

_STRIP_SAMPLES: Final = 1 << 16
"""How many chroma samples are converted at once: more samples need more memory, fewer need more calls."""
_WORD: Final = np.dtype("<u2")
_TERM_BITS: Final = 8
_MIDDLE: Final = 128
_LEAST, _MOST = np.int16(0), np.int16((256 << EARLY_BITS) - 1)
_HALF: Final = 2
"""One half, in units of a quarter."""
_HIGH_BYTE: Final = 0xFF00


class EarlyArithmetic:
    """Computes a plan's ``EarlyColour`` for a window (left, top, width, height) of pictures. Thread-safe.

    ``across`` and ``down`` say where chroma's columns and rows are.
    """

    def __init__(self, plan: TensorPlan, window: tuple[int, int, int, int], across: Lattice, down: Lattice) -> None:
        assert plan.early is not None, "the plan colours early"  # noqa: S101
        self.plan = plan
        self._early = plan.early
        self._window = window
        self._height = down.spacing
        self._across = [_neighbour(across, column) for column in range(across.spacing)]
        self._down = [_neighbour(down, row) for row in range(down.spacing)]
        left, top, wide, high = window
        self._columns = _covering(left, wide, across.spacing)
        self._rows = _covering(top, high, down.spacing)
        self._pitch = self._columns.stop - self._columns.start + 2
        (_, red), (green_cb, green), (blue, _) = self._early.chroma
        self._upper, self._lower = _halves(np.array([red, green_cb, blue]))
        self._green_upper, self._green_lower = _halves(np.array(green))

    def bands(self, samples: Sequence[Array], shift: int) -> Iterator[tuple[slice, Array]]:
        """Yield (rows of the target, bytes), bytes as (3, rows, columns). The next iteration overwrites the bytes."""
        assert not shift, "8 bits have no padding"  # noqa: S101
        left, _, wide, _ = self._window
        for rows, even, odd in self._words(samples):
            pairs = np.bitwise_or(even, odd, out=scratch("pairs", even.shape, _WORD))
            yield rows, pairs.view(np.uint8)[:, :, left % 2 : left % 2 + wide]

    def write(self, samples: Sequence[Array], target: Array) -> None:
        """Write the bytes into ``target`` (3, rows, columns)."""
        left, _, wide, _ = self._window
        if left % 2 or wide % 2 or target.strides[-1] > 1:
            for rows, shown in self.bands(samples, 0):
                np.copyto(target[:, rows], shown)
            return
        pairs = target.view(_WORD)
        for rows, even, odd in self._words(samples):
            np.bitwise_or(even, odd, out=pairs[:, rows])

    def _words(self, samples: Sequence[Array]) -> Iterator[tuple[slice, Array, Array]]:
        """Yield (rows of the target, even columns in low bytes, odd columns in high bytes), each (3, rows, words)."""
        luma, *chroma = samples
        height = self._height
        count = max(1, _STRIP_SAMPLES // self._pitch)
        for begin in range(self._rows.start, self._rows.stop, count):
            rows = slice(begin, min(begin + count, self._rows.stop))
            even, odd = self._values(self._columned(self._terms(chroma, rows)), self._light(luma, rows))
            for number in range(height):
                made, inside = self._inside(slice(rows.start * height + number, rows.stop * height, height))
                yield made, even[number, :, inside, 1:-1], odd[number, :, inside, 1:-1]

    def _inside(self, rows: slice) -> tuple[slice, slice]:
        """Return which rows of the target these rows of the picture are, and the places of those among these rows."""
        _, top, _, high = self._window
        before = rows.start < top
        first, last = rows.start + before * rows.step, min(rows.stop, top + high)
        count = len(range(first, last, rows.step))
        return slice(first - top, last - top, rows.step), slice(before, before + count)

    def _terms(self, chroma: Sequence[Array], rows: slice) -> Array:
        """Return the terms (3, rows, columns) of these rows, the row above and the row below, each one column wider.

        Each weight's ``_halves`` are multiplied separately, so that products fit into 16 bits.
        """
        count, pitch = rows.stop - rows.start + 2, self._pitch
        samples = scratch("chroma", (3, count, pitch), np.int16)  # Cr, Cb, Cb: red and blue need one, green both
        above, below = max(rows.start - 1, self._rows.start), min(rows.stop + 1, self._rows.stop)
        first = above - rows.start + 1
        last = first + below - above
        for plane, into in zip(reversed(chroma), samples, strict=False):
            np.copyto(into[first:last, 1:-1], plane[above:below, self._columns])
        used = samples[:2]
        used[:, :first], used[:, last:] = used[:, first : first + 1], used[:, last - 1 : last]
        used -= _MIDDLE
        used[:, :, 0], used[:, :, -1] = used[:, :, 1], used[:, :, -2]
        samples[2] = samples[1]
        terms, product = scratch("terms", samples.shape, np.int16), scratch("product", samples.shape, np.int16)
        np.multiply(samples, self._lower, out=terms)
        terms[1] += np.multiply(samples[0], self._green_lower, out=product[0])
        terms += 1 << _TERM_BITS >> 1
        terms >>= _TERM_BITS
        terms += np.multiply(samples, self._upper, out=product)
        terms[1] += np.multiply(samples[0], self._green_upper, out=product[0])
        return terms

    def _columned(self, terms: Array) -> Array:
        """Return the terms interpolated down: (place of a luma row in its chroma row, 3, rows, columns)."""
        middle = terms[:, 1:-1]
        columns = scratch("columns", (len(self._down), *middle.shape), np.int16)
        for into, (step, quarters) in zip(columns, self._down, strict=True):
            other = terms[:, 1 + step : terms.shape[1] - 1 + step]
            np.multiply(middle, 4 - quarters, out=into)
            if quarters > 1:
                other = np.multiply(other, quarters, out=scratch("product", middle.shape, np.int16))
            if quarters:
                np.add(into, other, out=into)
        return columns

    def _light(self, luma: Array, rows: slice) -> Array:
        """Return the weighted Y': (even or odd columns, place of a luma row in its chroma row, rows, columns)."""
        columns = slice(2 * self._columns.start, 2 * self._columns.stop)
        height = self._height
        found = luma[rows.start * height : rows.stop * height, columns]
        size = (rows.stop - rows.start) * height, columns.stop - columns.start
        if found.shape != size or found.strides[1] > 1:
            held = scratch("bytes", size, np.uint8)
            held[: len(found), : found.shape[1]] = found
            found = held
        light = scratch("light", (2, height, rows.stop - rows.start, self._pitch), _WORD)
        words = found.view(_WORD).reshape(-1, height, size[1] // 2).transpose(1, 0, 2)
        np.bitwise_and(words, 0xFF, out=light[0, :, :, 1:-1])
        np.right_shift(words, 8, out=light[1, :, :, 1:-1])
        light *= self._early.luma
        light >>= 2
        weighed = light.view(np.int16)
        weighed += self._early.base
        return weighed

    def _values(self, columns: Array, light: Array) -> Array:
        """Return even columns in low bytes, odd columns in high bytes.

        The shape is (2, place of a luma row in its chroma row, 3, rows, words), with an unused word on each side.
        """
        sums = scratch("values", (2, *columns.shape), np.int16)
        middle = columns.reshape(-1)[1:-1]
        for total, bright, (step, quarters) in zip(sums, light, self._across, strict=True):
            if quarters:
                moved = total.reshape(-1)[1:-1]
                other = columns.reshape(-1)[1 + step : columns.size - 1 + step]
                if quarters == _HALF:
                    np.add(other, middle, out=moved)
                    moved >>= 1
                else:  # 3 x middle + other would not fit into 16 bits
                    np.subtract(other, middle, out=moved)
                    moved >>= 3 - quarters
                    moved += middle
            np.add(total if quarters else columns, bright[:, None], out=total)
        sums.clip(_LEAST, _MOST, out=sums)
        words: Array = sums.view(_WORD)
        even, odd = words
        even >>= EARLY_BITS
        odd *= 1 << (8 - EARLY_BITS)
        odd &= _HIGH_BYTE
        return words


def _halves(weights: Array) -> tuple[Array, Array]:
    """Return the upper and lower parts (..., 1, 1) of weights = upper x 256 + lower, with lower from -127 to 128."""
    lower = (weights + (_MIDDLE - 1)) % (1 << _TERM_BITS) - (_MIDDLE - 1)
    parts = (weights - lower) >> _TERM_BITS, lower
    upper, lower = (each.astype(np.int16)[..., None, None] for each in parts)
    return upper, lower


def _covering(begin: int, extent: int, spacing: int) -> slice:
    """Return the samples whose area is at least partly inside a window."""
    return slice(begin // spacing, -(-(begin + extent) // spacing))


def _neighbour(lattice: Lattice, number: int) -> tuple[int, int]:
    """Return for luma sample ``number``: the direction of the second chroma sample, and its weight in quarters."""
    distance = (number + Fraction(1, 2) - lattice.first) / lattice.spacing
    return (1 if distance > 0 else -1), int(abs(distance) * 4)
