"""Chooses the sizes and the CRFs of a ladder for its film, from trial encodes (probes). Pure, exact.

Each size of the preset was probed at a few CRFs. For the CRFs between two probes, the quality and the logarithm of the
bitrate are interpolated linearly. The first rendition is the cheapest point that reaches the goal. The upper convex
hull of all points shows which size looks best at each bitrate. For each other rendition, a share of the first one's
bitrate is wanted, and the hull's point nearest to the wanted bitrate is chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Final

_CONTEXT: Final = Context(prec=30)
_HALF: Final = Fraction(1, 2)
APART: Final = Fraction(5, 4)
"""Each rendition has at least this many times the bits of the next; slots without such a point are left out."""


@dataclass(frozen=True, slots=True, order=True)
class RatePoint:
    """The bitrate and the quality of the film in one size at one CRF; points sort by bitrate."""

    bps: int  # of the whole film
    quality: Fraction  # the average of all measured pictures, at the size of the largest rendition
    size: tuple[int, int]  # width and height
    crf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A rendition of the preset, in one codec."""

    name: str
    size: tuple[int, int]
    stated_bps: int | None  # its ``bitrate`` or ``maxrate``; None if it has neither
    crf: int | None  # its ``quality``; None if it has a ``bitrate``


@dataclass(frozen=True, slots=True)
class Titled:
    """The renditions chosen for a film."""

    goal: Fraction  # the quality that the first rendition should have
    hull: tuple[RatePoint, ...]
    chosen: Mapping[str, RatePoint]  # by name of the slot, the most bits first; slots without a point are left out


def titled(slots: Sequence[Slot], probes: Iterable[RatePoint], goal: Fraction | None) -> Titled:
    """Return the renditions for a film whose sizes were probed.

    ``goal`` is the quality that the first rendition should have; None means the quality of the largest slot as the
    preset states it, with no more bits than this slot takes. No rendition has more bits than its slot states or, if the
    slot states no bitrate, than its CRF takes. If every point has more bits than the largest slot may have, the first
    rendition is the cheapest point.
    """
    points = sorted(set(filled(probes)))
    order = sorted(slots, key=lambda slot: (-slot.size[0] * slot.size[1], -(slot.stated_bps or 0), slot.name))
    hull = upper_hull(points)
    first = order[0]
    own, most = _own(first, points), _most_bps(first, points)
    wanted = own.quality if goal is None else goal
    most = min(most, own.bps) if goal is None else most
    # All points count, not only the hull's: the hull has gaps, so its cheapest point that reaches the goal may have far
    # more bits than a point below the hull that also reaches it.
    allowed = [each for each in points if each.bps <= most] or [hull[0]]
    top = min(allowed, key=lambda each: _missed(each, wanted))
    chosen = {first.name: top}
    last = top
    for number, slot in enumerate(order[1:], 1):
        near = Fraction(top.bps) * _ratio(first, slot, number)
        most = min(_most_bps(slot, points), int(last.bps / APART))
        fitting = [each for each in hull if each.bps <= most]
        if fitting:
            last = min(fitting, key=lambda each: (max(each.bps / near, near / each.bps), each.bps))
            chosen[slot.name] = last
    return Titled(wanted, hull, chosen)


def upper_hull(points: Iterable[RatePoint]) -> tuple[RatePoint, ...]:
    """Return the upper convex hull of points by bitrate and quality, up to the best quality; the fewest bits first."""
    hull: list[RatePoint] = []
    best: dict[int, RatePoint] = {}
    for each in points:
        known = best.get(each.bps)
        # Of equal points, the smaller picture is the cheaper one to decode.
        if known is None or (-each.quality, *_cheaper(each)) < (-known.quality, *_cheaper(known)):
            best[each.bps] = each
    for _, each in sorted(best.items()):
        if hull and each.quality <= hull[-1].quality:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], each):
            hull.pop()
        hull.append(each)
    return tuple(hull)


def filled(probes: Iterable[RatePoint]) -> Iterable[RatePoint]:
    """Yield the probes of each size, and an interpolated point for each CRF between two of them."""
    curves: dict[tuple[int, int], dict[int, RatePoint]] = {}
    for each in probes:
        curves.setdefault(each.size, {})[each.crf] = each
    for curve in curves.values():
        crfs = sorted(curve)
        yield from curve.values()
        for low, high in pairwise(crfs):
            yield from (_between(curve[low], curve[high], crf) for crf in range(low + 1, high))


def _between(first: RatePoint, last: RatePoint, crf: int) -> RatePoint:
    part = Fraction(crf - first.crf, last.crf - first.crf)
    logs = [_CONTEXT.ln(Decimal(max(1, each.bps))) for each in (first, last)]
    share = _CONTEXT.divide(Decimal(part.numerator), Decimal(part.denominator))
    log = _CONTEXT.add(logs[0], _CONTEXT.multiply(share, _CONTEXT.subtract(logs[1], logs[0])))
    quality = first.quality + part * (last.quality - first.quality)
    return RatePoint(int(_CONTEXT.exp(log)), quality, first.size, crf)


def _own(slot: Slot, points: Sequence[RatePoint]) -> RatePoint:
    """Return the point of the slot's size nearest to its CRF, or the best within its bitrate."""
    own = [each for each in points if each.size == slot.size]
    if slot.crf is not None:
        wanted = slot.crf
        return min(own, key=lambda each: (abs(each.crf - wanted), each))
    stated = slot.stated_bps or 0
    return max((each for each in own if each.bps <= stated), default=min(own))


def _most_bps(slot: Slot, points: Sequence[RatePoint]) -> int:
    return _own(slot, points).bps if slot.stated_bps is None else slot.stated_bps


def _missed(point: RatePoint, wanted: Fraction) -> tuple[int | Fraction, ...]:
    """Return a sort key: points that reach the goal come first, the cheapest of them before the others."""
    missed = max(Fraction(0), wanted - point.quality)
    return (missed, point.bps, -point.quality, *_cheaper(point))


def _ratio(first: Slot, slot: Slot, number: int) -> Fraction:
    """Return a slot's share of the first slot's bits: by the stated bitrates, otherwise half for each step down."""
    if first.stated_bps is None or slot.stated_bps is None:
        return _HALF**number
    return Fraction(slot.stated_bps, first.stated_bps)


def _slope(first: RatePoint, second: RatePoint) -> Fraction:
    return (second.quality - first.quality) / (second.bps - first.bps)


def _cheaper(point: RatePoint) -> tuple[int, ...]:
    return (*point.size, -point.crf)
