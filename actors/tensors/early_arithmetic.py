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

    def bands(self, samples: Sequence[Array], shift: int) -> Iterator[tuple[slice, Array]]:
        """Yield (rows of the target, bytes), bytes as (3, rows, columns). The next step overwrites the bytes."""
        assert not shift, "8 bits have no padding"  # noqa: S101
        luma, *chroma = samples
        count = max(1, _STRIP_SAMPLES // self._pitch)
        for begin in range(self._rows.start, self._rows.stop, count):
            rows = slice(begin, min(begin + count, self._rows.stop))
            terms = self._terms(chroma, rows)
            for number, neighbour in enumerate(self._down):
                made = slice(rows.start * self._height + number, rows.stop * self._height, self._height)
                values = self._values(self._column(terms, *neighbour), self._light(luma, made))
                yield self._shown(made, values)

    def _shown(self, rows: slice, values: Array) -> tuple[slice, Array]:
        """Return the rows of the target and the values inside the window."""
        left, top, wide, high = self._window
        before, begin = rows.start < top, 2 + left % 2
        first, last = rows.start + before * rows.step, min(rows.stop, top + high)
        count = len(range(first, last, rows.step))
        shown = values[:, before : before + count, begin : begin + wide]
        return slice(first - top, last - top, rows.step), shown

    def _terms(self, chroma: Sequence[Array], rows: slice) -> Array:
        """Return the terms (3, rows, columns) of these rows, the row above and the row below, each one column wider."""
        count, pitch = rows.stop - rows.start + 2, self._pitch
        wide = scratch("chroma", (3, count, pitch), np.int32)
        above, below = max(rows.start - 1, self._rows.start), min(rows.stop + 1, self._rows.stop)
        first = above - rows.start + 1
        last = first + below - above
        for plane, into in zip(chroma, wide, strict=False):
            np.copyto(into[first:last, 1:-1], plane[above:below, self._columns])
            into[:, 0], into[:, -1] = into[:, 1], into[:, -2]
            into[:first], into[last:] = into[first], into[last - 1]
        cb, cr, product = wide
        sums = scratch("sums", wide.shape, np.int32)
        for into, (of_cb, of_cr) in zip(sums, self._early.chroma, strict=True):
            np.multiply(cb if of_cb else cr, of_cb or of_cr, out=into)
            if of_cb and of_cr:
                np.add(into, np.multiply(cr, of_cr, out=product), out=into)
            np.add(into, (1 << _TERM_BITS >> 1) - 128 * (of_cb + of_cr), out=into)
        sums >>= _TERM_BITS
        terms = scratch("terms", sums.shape, np.int16)
        np.copyto(terms, sums, casting="unsafe")
        return terms

    def _column(self, terms: Array, step: int, quarters: int) -> Array:
        """Return the sums (3, rows, columns) of two rows' terms."""
        middle, other = terms[:, 1:-1], terms[:, 1 + step : terms.shape[1] - 1 + step]
        column = np.multiply(middle, 4 - quarters, out=scratch("column", middle.shape, np.int16))
        if quarters > 1:
            other = np.multiply(other, quarters, out=scratch("moved", middle.shape, np.int16))
        return np.add(column, other, out=column) if quarters else column

    def _light(self, luma: Array, rows: slice) -> Array:
        """Return the weighted Y' of even and odd columns, as (2, rows, columns)."""
        columns = slice(2 * self._columns.start, 2 * self._columns.stop)
        found = luma[rows, columns]
        width = columns.stop - columns.start
        if found.shape[1] < width or found.strides[1] > 1:
            held = scratch("bytes", (len(found), width), np.uint8)
            held[:, : found.shape[1]] = found
            found = held
        light = scratch("light", (2, len(range(rows.start, rows.stop, rows.step)), self._pitch), _WORD)
        even, odd = light[:, : len(found), 1:-1]
        np.bitwise_and(found.view(_WORD), 0xFF, out=even)
        np.right_shift(found.view(_WORD), 8, out=odd)
        light *= self._early.luma
        light >>= 2
        weighed = light.view(np.int16)
        weighed += self._early.base
        return weighed

    def _values(self, column: Array, light: Array) -> Array:
        """Return the bytes (3, rows, columns), with two extra columns on each side."""
        flat = column.reshape(3, -1)
        sums = scratch("values", (2, *flat.shape), np.int16)
        inner = slice(1, -1)
        middle, moved = flat[:, inner], scratch("moved", flat.shape, np.int16)[:, inner]
        totals, lights = sums[:, :, inner], light.reshape(2, -1)[:, inner]
        for total, bright, (step, quarters) in zip(totals, lights, self._across, strict=True):
            if quarters:
                other = flat[:, 1 + step : flat.shape[1] - 1 + step]
                if quarters == _HALF:
                    np.right_shift(np.add(other, middle, out=moved), 1, out=moved)
                else:  # 3 x middle + other would not fit into 16 bits
                    np.right_shift(np.subtract(other, middle, out=moved), 3 - quarters, out=moved)
                    np.add(moved, middle, out=moved)
            np.add(moved if quarters else middle, bright, out=total)
        sums.clip(_LEAST, _MOST, out=sums)
        even, odd = sums.view(_WORD)
        even >>= EARLY_BITS
        odd *= 1 << (8 - EARLY_BITS)
        odd &= _HIGH_BYTE
        even |= odd
        values: Array = even.view(np.uint8).reshape(3, len(light[0]), -1)
        return values


def _covering(begin: int, extent: int, spacing: int) -> slice:
    """Return the samples whose area is at least partly inside a window."""
    return slice(begin // spacing, -(-(begin + extent) // spacing))


def _neighbour(lattice: Lattice, number: int) -> tuple[int, int]:
    """Return for luma sample ``number``: the direction of the second chroma sample, and its weight in quarters."""
    distance = (number + Fraction(1, 2) - lattice.first) / lattice.spacing
    return (1 if distance > 0 else -1), int(abs(distance) * 4)
