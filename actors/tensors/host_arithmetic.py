"""Carries out a tensor plan on the host, as products of banded matrices in exact floating point.

Sums of whole numbers are exact in single precision, in any order, if no part of the sum reaches 2^24; in double
precision, if none reaches 2^53. So
NumPy's matrix product gives the integers of ``plan``, several times faster than integer code in Python would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..surfaces.scaling import Taps
from .host_memory import scratch
from .plan import COLOUR_BITS, SPARE_BITS, TAP_BITS, ChannelTaps, TensorPlan

Floats = NDArray[Any]
"""Arrays in single or double precision."""
Kind = type[np.float32] | type[np.float64]

_SINGLE_EXACT: Final = 1 << 24
_PRODUCT_MOST: Final = 1 << 18
"""The most multiplications of a matrix product: OpenBLAS shares larger products among threads, one caller at a time."""
_STRIP_BYTES: Final = 1 << 20
"""How many bytes of source rows are converted at once: few enough to stay in a core's cache until they are used."""
_BAND_SAMPLES: Final = 1 << 17
"""How many pixels of the target are resized at once: more pixels need more memory, fewer need more calls."""
_COLOURED_SAMPLES: Final = 1 << 15
"""How many pixels are converted to colour at once: few enough to stay in a core's cache until they are written."""
_BLOCKS: Final = (2, 4, 8, 16, 32, 64)
_CALL_COST: Final = 150_000
"""The cost of beginning a matrix product, in multiplications."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some target samples of an axis, made from adjoining source samples."""

    target: slice
    source: slice
    weights: Floats  # (sources, targets)


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of a channel, made of blocks; without blocks, each target sample equals a source sample."""

    blocks: tuple[Block, ...]
    source: slice  # the range of source samples that are used
    kind: Kind  # a type in which the sums are exact
    least: float  # the least result
    most: float  # the largest result
    fraction_bits: int  # how many bits of a result are fraction bits

    @property
    def changes(self) -> bool:
        """Whether target samples differ from source samples."""
        return bool(self.blocks)

    @property
    def length(self) -> int:
        """How many source samples are used."""
        return int(self.source.stop) - int(self.source.start)


def axis(taps: Taps, shift: int, numbers: tuple[float, float], fraction_bits: int, lines: int) -> Axis:
    """Return an axis for sources from least to most; sums are divided by 2^``shift``, ``lines`` are made at once."""
    least, most = numbers
    firsts, weights = np.array(taps.firsts), np.array(taps.weights)
    source = slice(int(firsts.min()), int(firsts.max()) + taps.count)
    if taps.count == 1 and (np.diff(firsts) == 1).all():
        return Axis((), source, np.float32, least, most, fraction_bits)
    above, below = (float(each.clip(0).sum(axis=1).max()) / (1 << shift) for each in (weights, -weights))
    least, most = above * least - below * most, above * most - below * least
    fraction_bits += shift - _zero_bits(weights)
    kind = _exact(max(most, -least), fraction_bits)
    count = len(firsts)
    step = (firsts[-1] - firsts[0]) / count
    together = min(_BLOCKS, key=lambda each: _CALL_COST / each + ((each - 1) * step + taps.count) * lines)
    blocks = []
    for low in range(0, count, together):
        high = min(low + together, count)
        first, last = int(firsts[low:high].min()), int(firsts[low:high].max()) + taps.count
        matrix = np.zeros((last - first, high - low), dtype=kind)
        for target in range(low, high):
            place = firsts[target] - first
            matrix[place : place + taps.count, target - low] = weights[target] / (1 << shift)
        blocks.append(Block(slice(low, high), slice(first, last), matrix))
    return Axis(tuple(blocks), source, kind, least - 1, most + 1, fraction_bits)


def _zero_bits(numbers: NDArray[np.int64]) -> int:
    """Return how many low bits are zero in all of these whole numbers."""
    common = int(np.gcd.reduce(numbers, axis=None))
    return (common & -common).bit_length() - 1


def _exact(largest: float, fraction_bits: int) -> Kind:
    """Return the type in which sums are exact, if no part of a sum exceeds ``largest``."""
    return np.float32 if largest * 2.0**fraction_bits < _SINGLE_EXACT else np.float64


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGroup:
    """Adjacent channels that are resized in the same way."""

    channels: slice
    offsets: tuple[int, ...]  # for each channel, subtracted between the axes, so that sums need fewer bits
    down: Axis
    across: Axis

    @property
    def count(self) -> int:
        """How many channels there are."""
        return len(self.offsets)

    @property
    def columns(self) -> int:
        """How many columns of each channel are used."""
        return self.across.length

    def place(self, source: slice) -> slice:
        """Return the place of source columns among the columns that are used."""
        return slice(source.start - self.across.source.start, source.stop - self.across.source.start)

    def parts(self, rows: Floats) -> list[Floats]:
        """Split rows that hold all channels side by side into one view for each channel."""
        return [rows[:, begin : begin + self.columns] for begin in range(0, rows.shape[1], self.columns)]


class Arithmetic:
    """Carries out a plan by matrix products. Thread-safe."""

    def __init__(self, plan: TensorPlan) -> None:
        self.plan = plan
        width, height = plan.size
        self._band = max(4, min(height, _BAND_SAMPLES // width))
        self._strip = max(1, _COLOURED_SAMPLES // width)
        self._groups = tuple(_groups(plan, self._band))
        # A row for each channel of the target.
        weights = np.array(plan.weights if len(set(plan.weights)) > 1 else plan.weights[:1])
        axes = [group.across for group in self._groups for _ in range(group.count)]
        weights[:, [not group.down.changes for group in self._groups for _ in range(group.count)]] <<= SPARE_BITS
        zeros = min(_zero_bits(column) - each.fraction_bits for column, each in zip(weights.T, axes, strict=True))
        largest = (np.abs(weights) @ [max(-each.least, each.most) for each in axes]).max()
        self._kind = _exact(float(largest), -zeros)
        self._weights = (weights / (1 << (COLOUR_BITS + SPARE_BITS))).astype(self._kind)

    def bands(self, samples: Sequence[NDArray[Any]], shift: int) -> Iterator[tuple[slice, Floats]]:
        """Yield (rows of the target, values): whole numbers (channels, rows, columns), or (1, ...) for equal channels.

        ``samples`` are the channels of the source (rows, columns), with ``shift`` padding bits below each sample. The
        next iteration overwrites the values.
        """
        width, height = self.plan.size
        for top in range(0, height, self._band):
            rows = slice(top, min(top + self._band, height))
            planes = scratch("planes", (len(self.plan.offsets), rows.stop - top, width), self._kind)
            for group in self._groups:
                _resized(group, samples[group.channels], shift, rows, [*planes[group.channels]])
            for begin in range(top, rows.stop, self._strip):
                strip = slice(begin, min(begin + self._strip, rows.stop))
                yield strip, self._coloured(planes[:, begin - top : strip.stop - top])

    def _coloured(self, planes: Floats) -> Floats:
        values = scratch("values", (len(self._weights), *planes.shape[1:]), self._kind)
        _product(self._weights, planes.reshape(len(planes), -1), values.reshape(len(values), -1))
        np.rint(values, out=values)
        return np.clip(values, 0, self.plan.largest, out=values)


def _groups(plan: TensorPlan, band: int) -> Iterator[ChannelGroup]:
    begin = 0
    for taps, channels in groupby(plan.taps):
        count = len(list(channels))
        offsets = plan.offsets[begin : begin + count]
        yield ChannelGroup(slice(begin, begin + count), offsets, *_axes(taps, plan.bits, offsets, band))
        begin += count


def _axes(taps: ChannelTaps, bits: int, offsets: tuple[int, ...], band: int) -> tuple[Axis, Axis]:
    columns = taps.across.firsts[-1] + taps.across.count - taps.across.firsts[0]
    down = axis(taps.down, TAP_BITS - SPARE_BITS, (0, (1 << bits) - 1), 0, len(offsets) * columns)
    spare_bits = SPARE_BITS if down.changes else 0
    between = down.least - (max(offsets) << spare_bits), down.most - (min(offsets) << spare_bits)
    return down, axis(taps.across, TAP_BITS, between, min(0, down.fraction_bits), band)


def _resized(
    group: ChannelGroup, samples: Sequence[NDArray[Any]], shift: int, rows: slice, planes: list[Floats]
) -> None:
    """Write the target's rows of channels (count, rows, width), with ``SPARE_BITS`` more bits if rows are resized."""
    first = group.down.source.start
    source_rows = slice(first + rows.start, first + rows.stop)
    if not (group.down.changes or group.across.changes):
        _lay(samples, shift, (source_rows, group.across.source), planes)
        _centre(planes, group.offsets)
        return
    between = scratch("between", (rows.stop - rows.start, group.count * group.columns), group.across.kind)
    if group.down.changes:
        _down(group, samples, shift, rows, between)
        _centre(group.parts(between), [each << SPARE_BITS for each in group.offsets])
    else:
        _lay(samples, shift, (source_rows, group.across.source), group.parts(between))
        _centre(group.parts(between), group.offsets)
    for plane, part in zip(planes, group.parts(between), strict=True):
        if not group.across.changes:
            np.copyto(plane, part)
            continue
        made = plane if plane.dtype == part.dtype else scratch("made", plane.shape, group.across.kind)
        for block in group.across.blocks:
            _product(part[:, group.place(block.source)], block.weights, made[:, block.target])
        if made is not plane:
            np.copyto(plane, made)


def _down(group: ChannelGroup, samples: Sequence[NDArray[Any]], shift: int, rows: slice, between: Floats) -> None:
    kind = group.down.kind
    sums = between if group.across.kind is kind else scratch("sums", between.shape, kind)
    blocks = [each for each in group.down.blocks if each.target.start < rows.stop and each.target.stop > rows.start]
    rows_most = max(1, _STRIP_BYTES // (between.shape[1] * np.dtype(kind).itemsize))
    strip = scratch("strip", (0, 0), kind)
    held = slice(0, 0)
    for number, block in enumerate(blocks):
        if block.source.stop > held.stop or block.source.start < held.start:
            last = block.source.stop
            for later in blocks[number + 1 :]:
                if later.source.stop - block.source.start > rows_most:
                    break
                last = max(last, later.source.stop)
            held = slice(block.source.start, last)
            strip = scratch("strip", (last - held.start, between.shape[1]), kind)
            _lay(samples, shift, (held, group.across.source), group.parts(strip))
        source = strip[block.source.start - held.start : block.source.stop - held.start]
        begin, end = max(block.target.start, rows.start), min(block.target.stop, rows.stop)
        weights = block.weights.T[begin - block.target.start : end - block.target.start]
        _product(weights, source, sums[begin - rows.start : end - rows.start])
    if group.down.fraction_bits > 0:
        np.rint(sums, out=between)
    elif sums is not between:
        np.copyto(between, sums)


def _product(one: Floats, other: Floats, out: Floats) -> None:
    """Multiply, in slices that OpenBLAS computes in one thread."""
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


def _lay(samples: Sequence[NDArray[Any]], shift: int, where: tuple[slice, slice], parts: Sequence[Floats]) -> None:
    """Convert these (rows, columns) of each channel into the channel's part."""
    for channel, part in zip(samples, parts, strict=True):
        np.copyto(part, channel[where])
        if shift:
            np.divide(part, 1 << shift, out=part)


def _centre(parts: Sequence[Floats], offsets: Sequence[int]) -> None:
    for part, offset in zip(parts, offsets, strict=True):
        if offset:
            np.subtract(part, offset, out=part)
