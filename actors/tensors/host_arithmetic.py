"""A tensor plan on the host: sums of whole numbers as products of banded matrices, in floating point that is exact.

Sums of whole numbers below 2^24 are exact in single precision, and below 2^53 in double precision, in any order. So
NumPy's matrix product gives the integers of ``plan``, several times faster than integer code in Python could.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..media.values import Colour
from ..surfaces.scaling import Taps
from .plan import COLOUR_BITS, SPARE_BITS, TAP_BITS, ChannelTaps, TensorPlan, tensor_plan
from .sample_places import SamplePlaces
from .tensor_format import TensorFormat

Floats = NDArray[Any]
"""In single or double precision."""

_SINGLE_EXACT: Final = 1 << 24
_PRODUCT_MOST: Final = 1 << 18
"""Multiplications of a matrix product: OpenBLAS shares larger ones among threads, and lets only one caller do so."""
_STRIP_BYTES: Final = 1 << 20
"""The source rows that are converted at once: they stay in a core's cache until they are used."""
_BAND_SAMPLES: Final = 1 << 16
"""The pixels of the target that are finished at once."""
_BLOCKS: Final = (2, 4, 8, 16, 32, 64)
_CALL_COST: Final = 150_000
"""What it costs to begin a matrix product, in multiplications."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some targets of an axis, made from adjoining sources."""

    target: slice
    source: slice
    weights: Floats  # (sources, targets)


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of a channel: ``blocks`` is empty if each target is a source."""

    blocks: tuple[Block, ...]
    source: slice  # all that is used
    kind: type[np.float32] | type[np.float64]  # exact for its sums
    largest: float  # that a result's magnitude can have

    @property
    def length(self) -> int:
        """How many sources are used."""
        return int(self.source.stop) - int(self.source.start)


def axis(taps: Taps, shift: int, largest: float, lines: int) -> Axis:
    """Return an axis whose sums of samples up to ``largest`` are divided by 2^``shift``, ``lines`` at once."""
    firsts, weights = np.array(taps.firsts), np.array(taps.weights, dtype=np.float64)
    bound = np.abs(weights).sum(axis=1).max() * largest
    kind = np.float32 if bound < _SINGLE_EXACT else np.float64
    source = slice(int(firsts.min()), int(firsts.max()) + taps.count)
    if taps.count == 1 and (np.diff(firsts) == 1).all():
        return Axis((), source, kind, float(bound) / (1 << shift))
    count = len(firsts)
    step = (firsts[-1] - firsts[0]) / count
    together = min(_BLOCKS, key=lambda each: _CALL_COST / each + ((each - 1) * step + taps.count) * lines)
    blocks = []
    for begin in range(0, count, together):
        end = min(begin + together, count)
        first, last = int(firsts[begin:end].min()), int(firsts[begin:end].max()) + taps.count
        matrix = np.zeros((last - first, end - begin), dtype=kind)
        for target in range(begin, end):
            place = firsts[target] - first
            matrix[place : place + taps.count, target - begin] = weights[target] / (1 << shift)
        blocks.append(Block(slice(begin, end), slice(first, last), matrix))
    return Axis(tuple(blocks), source, kind, float(bound) / (1 << shift) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGroup:
    """Channels that are resized alike, side by side."""

    channels: slice
    count: int
    down: Axis
    across: Axis

    @property
    def columns(self) -> int:
        """How many columns of each channel are used."""
        return self.across.length


@lru_cache(maxsize=32)
def prepared(places: SamplePlaces, size: tuple[int, int], colour: Colour, format_: TensorFormat) -> "Arithmetic":
    """Return the arithmetic of ``tensor_plan``, which raises as there."""
    return Arithmetic(tensor_plan(places, size, colour, format_))


class Arithmetic:
    """A plan's matrices. Safe from any thread."""

    def __init__(self, plan: TensorPlan) -> None:
        self.plan = plan
        width, height = plan.size
        self._band = max(4, min(height, _BAND_SAMPLES // width))
        self._groups = tuple(_groups(plan, self._band))
        # A row for each channel of the target: weights, then what the offsets subtract.
        scale = 1 << (COLOUR_BITS + SPARE_BITS)
        rows = plan.weights if len(set(plan.weights)) > 1 else plan.weights[:1]
        self._weights = np.array(rows, dtype=np.float64) / scale
        offsets = np.array(plan.offsets, dtype=np.float64) * (1 << SPARE_BITS)
        self._constants = -(self._weights @ offsets)[:, None, None]

    def bands(self, samples: Sequence[NDArray[Any]], shift: int) -> Iterator[tuple[slice, Floats]]:
        """Yield (rows of the target, values): whole numbers (channels, rows, columns), or (1, ...) if all are equal.

        ``samples`` are the source's channels (rows, columns), with ``shift`` padding bits below each sample. The next
        step overwrites the values.
        """
        width, height = self.plan.size
        for top in range(0, height, self._band):
            rows = slice(top, min(top + self._band, height))
            planes = _scratch("planes", (len(self.plan.offsets), rows.stop - top, width), np.float64)
            for group in self._groups:
                _resized(group, samples[group.channels], shift, rows, planes[group.channels])
            values = _scratch("values", (len(self._weights), *planes.shape[1:]), np.float64)
            yield rows, self._coloured(planes, values)

    def _coloured(self, planes: Floats, values: Floats) -> Floats:
        count = planes.shape[1] * planes.shape[2]
        flat = values.reshape(len(values), count)
        np.matmul(self._weights, planes.reshape(len(planes), count), out=flat)
        values += self._constants
        np.rint(values, out=values)
        return np.clip(values, 0, self.plan.largest, out=values)


def _groups(plan: TensorPlan, band: int) -> Iterator[ChannelGroup]:
    begin = 0
    for taps, channels in groupby(plan.taps):
        count = len(list(channels))
        yield ChannelGroup(slice(begin, begin + count), count, *_axes(taps, plan.bits, count, band))
        begin += count


def _axes(taps: ChannelTaps, bits: int, count: int, band: int) -> tuple[Axis, Axis]:
    columns = taps.across.firsts[-1] + taps.across.count - taps.across.firsts[0]
    down = axis(taps.down, TAP_BITS - SPARE_BITS, (1 << bits) - 1, count * columns)
    return down, axis(taps.across, TAP_BITS, down.largest, band)


class _Memory(threading.local):
    """A thread's arrays by use: memory that is new for each picture would have to be mapped page by page."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}


_memory: Final = _Memory()


def _scratch(use: str, shape: tuple[int, ...], kind: type[np.float32] | type[np.float64]) -> Floats:
    size_bytes = prod(shape) * np.dtype(kind).itemsize
    held = _memory.held.get(use)
    if held is None or held.nbytes < size_bytes:
        held = _memory.held[use] = np.empty(size_bytes, dtype=np.uint8)
    return held[:size_bytes].view(kind).reshape(shape)


def _resized(group: ChannelGroup, samples: Sequence[NDArray[Any]], shift: int, rows: slice, planes: Floats) -> None:
    """Write channels (count, rows, width) of the target's rows, with ``SPARE_BITS`` more bits than samples."""
    between = _scratch("between", (rows.stop - rows.start, group.count * group.columns), group.across.kind)
    if group.down.blocks:
        _down(group, samples, shift, rows, between)
    else:
        first = group.down.source.start
        _laid(samples, slice(first + rows.start, first + rows.stop), group.across.source, between)
        between *= (1 << SPARE_BITS) / (1 << shift)
    for number, plane in enumerate(planes):
        part = between[:, number * group.columns : (number + 1) * group.columns]
        if not group.across.blocks:
            np.copyto(plane, part)
            continue
        made = _scratch("made", plane.shape, group.across.kind)
        start = group.across.source.start
        for block in group.across.blocks:
            source = part[:, block.source.start - start : block.source.stop - start]
            _product(source, block.weights, made[:, block.target])
        np.copyto(plane, made)


def _down(group: ChannelGroup, samples: Sequence[NDArray[Any]], shift: int, rows: slice, between: Floats) -> None:
    kind = group.down.kind
    sums = between if group.across.kind is kind else _scratch("sums", between.shape, kind)
    blocks = [each for each in group.down.blocks if each.target.start < rows.stop and each.target.stop > rows.start]
    rows_most = max(1, _STRIP_BYTES // (between.shape[1] * np.dtype(kind).itemsize))
    strip = _scratch("strip", (0, 0), kind)
    held = slice(0, 0)
    for number, block in enumerate(blocks):
        if block.source.stop > held.stop or block.source.start < held.start:
            last = block.source.stop
            for later in blocks[number + 1 :]:
                if later.source.stop - block.source.start > rows_most:
                    break
                last = max(last, later.source.stop)
            held = slice(block.source.start, last)
            strip = _scratch("strip", (last - held.start, between.shape[1]), kind)
            _laid(samples, held, group.across.source, strip)
            if shift:
                strip /= 1 << shift
        source = strip[block.source.start - held.start : block.source.stop - held.start]
        begin, end = max(block.target.start, rows.start), min(block.target.stop, rows.stop)
        weights = block.weights.T[begin - block.target.start : end - block.target.start]
        _product(weights, source, sums[begin - rows.start : end - rows.start])
    np.rint(sums, out=between)


def _product(one: Floats, other: Floats, out: Floats) -> None:
    """Multiply, in slices that OpenBLAS does by one thread."""
    rows, columns = out.shape
    inner = one.shape[1]
    if rows > columns:
        step = max(1, _PRODUCT_MOST // (inner * columns))
        for begin in range(0, rows, step):
            np.matmul(one[begin : begin + step], other, out=out[begin : begin + step])
        return
    step = max(1, _PRODUCT_MOST // (inner * rows))
    for begin in range(0, columns, step):
        np.matmul(one, other[:, begin : begin + step], out=out[:, begin : begin + step])


def _laid(samples: Sequence[NDArray[Any]], rows: slice, columns: slice, out: Floats) -> None:
    """Convert rows of some channels, side by side."""
    width = columns.stop - columns.start
    for number, channel in enumerate(samples):
        np.copyto(out[:, number * width : (number + 1) * width], channel[rows, columns])
