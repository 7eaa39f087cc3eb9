"""Scales and converts on the host, bit for bit as the kernels do: a substitute for the kernels, and their reference."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .conversion import BETWEEN_BITS, Conversion, PlanePlace, PlanePlan, padding_bits
from .formats import SurfaceFormat
from .scaling import WEIGHT_BITS, Taps


def source_bytes(conversion: Conversion) -> int:
    """Return the size in bytes of a surface that a conversion reads."""
    return conversion.source.size_bytes(*conversion.source_size)


def converted(conversion: Conversion, surface: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the bytes of a converted surface; ``ValueError`` if the source's size does not fit the conversion."""
    if surface.nbytes != source_bytes(conversion):
        msg = f"the surface has {surface.nbytes} bytes, not {source_bytes(conversion)}"
        raise ValueError(msg)
    if conversion.is_identity:
        return surface.copy()
    result = np.empty(conversion.target_bytes, dtype=np.uint8)
    source, target = _samples(surface, conversion.source), _samples(result, conversion.target)
    for plan in conversion.plans():
        values = (_plane(source, plan.source) >> padding_bits(conversion.source)).astype(np.int32)
        if plan.is_scaled:
            values = _scaled(values, plan, conversion.source.bits, conversion.target.bits)
        else:
            values = _with_bits(values, conversion.source.bits, conversion.target.bits)
        largest = (1 << conversion.target.bits) - 1
        _plane(target, plan.target)[:] = values.clip(0, largest) << padding_bits(conversion.target)
    return result


def _samples(surface: NDArray[np.uint8], format_: SurfaceFormat) -> NDArray[Any]:
    return surface if format_.sample_bytes == 1 else surface.view(np.uint16)


def _plane(samples: NDArray[Any], place: PlanePlace) -> NDArray[Any]:
    lines = samples[place.offset - place.offset % place.step :][: place.rows * place.pitch]
    return lines.reshape(place.rows, place.pitch)[:, place.offset % place.step :: place.step]


def _with_bits(values: NDArray[np.int32], before: int, after: int) -> NDArray[np.int32]:
    return values << (after - before) if after >= before else _halves_up(values, before - after)


def _scaled(values: NDArray[np.int32], plan: PlanePlan, before: int, after: int) -> NDArray[np.int32]:
    between = _halves_up(_weighed(values.T, plan.across), WEIGHT_BITS + before - BETWEEN_BITS).astype(np.int16)
    return _halves_up(_weighed(between.T.astype(np.int32), plan.down), WEIGHT_BITS + BETWEEN_BITS - after)


def _weighed(rows: NDArray[np.int32], each: Taps) -> NDArray[np.int32]:
    firsts, weights = np.array(each.firsts), np.array(each.weights, dtype=np.int32)
    sums = np.zeros((len(firsts), rows.shape[1]), dtype=np.int32)
    for tap in range(each.count):
        sums += weights[:, tap, None] * rows[firsts + tap]
    return sums


def _halves_up(sums: NDArray[np.int32], shift: int) -> NDArray[np.int32]:
    return (sums + (1 << shift >> 1)) >> shift
