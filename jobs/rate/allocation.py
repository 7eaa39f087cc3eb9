"""Chooses the CRF of each segment, so that all segments together have a given size. Pure and exact.

At equal CRFs, one more bit improves each segment by about the same amount. So all segments get the same CRF, or one of
two nearby CRFs, such that their sizes add up to the given size.

A segment's size at another CRF is predicted from an earlier encoding: the size halves each time the CRF rises by
``halving_crfs``, which is measured as soon as there are two encodings. Only integers, fractions and correctly rounded
decimals are used, so the choice is the same on every machine and in any order of the segments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from ...actors.encode.profiles import SoftwareProfile

_CONTEXT: Final = Context(prec=30)
_LN2: Final = _CONTEXT.ln(Decimal(2))
_SLOPE_STEPS: Final = 64  # a measured slope is rounded to the nearest 1/64 of a CRF
_LEAST_APART: Final = 1  # the slope is measured only between CRFs that differ by at least this
_BEST: Final = Fraction(4)  # a lower CRF makes no visible difference, so a film may have fewer bits than requested
USUAL_BITS: Final = Fraction(1, 12)
"""Roughly how many bits a luma sample takes at an encoder's usual CRF; the first pass measures the true number."""
SLACK: Final = Fraction(1, 100)
"""A film may be smaller than requested by this fraction of the requested size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateScale:
    """An encoder's range of CRFs, and how the size depends on the CRF."""

    usual: Fraction  # the encoder's default
    best: Fraction  # the lowest CRF to use
    worst: Fraction  # the highest CRF to use
    step: Fraction  # the smallest difference between two CRFs
    halving_crfs: Fraction  # the rise of the CRF that halves the size

    @classmethod
    def of(cls, profile: SoftwareProfile) -> "RateScale":
        """Return the scale of an encoder."""
        return cls(
            usual=Fraction(profile.default_quality),
            best=_BEST,
            worst=Fraction(profile.worst_quality),
            step=profile.fine_crf_step,
            halving_crfs=Fraction(profile.halving_crfs),
        )

    @property
    def near(self) -> Fraction:
        """How far apart the CRFs of a film's segments may be without a visible or measurable loss."""
        return max(Fraction(1), Fraction(round(self.halving_crfs / 5)))

    def on_grid(self, crf: Fraction) -> Fraction:
        """Return the nearest CRF that the encoder accepts, within the limits."""
        return min(max(round(crf / self.step) * self.step, self.best), self.worst)


@dataclass(frozen=True, slots=True)
class SizeTry:
    """One encoding of a segment."""

    crf: Fraction
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TriedSegment:
    """A segment with its encodings; the last one counts."""

    segment: int
    tries: tuple[SizeTry, ...]

    @property
    def last(self) -> SizeTry:
        """The encoding that counts."""
        return self.tries[-1]


@dataclass(frozen=True, slots=True)
class SizeBudget:
    """The sizes that a film may have, in bytes."""

    most: int

    @property
    def least(self) -> int:
        """The smallest size that is near enough."""
        return self.most - int(self.most * SLACK)

    @property
    def aim(self) -> int:
        """The size to aim for: a film stays within the limits even if the prediction is slightly wrong."""
        return self.most - int(self.most * SLACK / 2)


def first_crf(bits_per_sample: Fraction, scale: RateScale) -> Fraction:
    """Return the CRF of a film's sample, when only the film's bits per luma sample are known."""
    bits = max(bits_per_sample, Fraction(1, 1 << 20))
    return scale.on_grid(scale.usual + scale.halving_crfs * _log2(USUAL_BITS / bits))


def film_crf(sampled_bytes: int, crf: Fraction, part: Fraction, budget: SizeBudget, scale: RateScale) -> Fraction:
    """Return the CRF for all segments, from the size of a sample that is ``part`` of the film, encoded at ``crf``.

    It is the sample's own CRF if that is near enough, so that the sample need not be encoded again.
    """
    ratio = sampled_bytes / part / max(1, budget.aim)
    found = scale.on_grid(crf + scale.halving_crfs * _log2(max(ratio, Fraction(1, 1 << 20))))
    return crf if abs(found - crf) <= scale.near / 2 else found


def measured(film: Iterable[TriedSegment], scale: RateScale) -> RateScale:
    """Return the scale with the slope measured over all segments that have encodings at two CRFs, if there are any."""
    pairs = [pair for each in film if (pair := _apart(each)) is not None]
    first, last = (sum(pair[n].size_bytes for pair in pairs) for n in (0, 1))
    apart = sum((abs(pair[1].crf - pair[0].crf) * pair[0].size_bytes for pair in pairs), Fraction(0))
    return (
        scale if not first else _with_slope(scale, apart / first, Fraction(max(first, last), max(1, min(first, last))))
    )


def moves(film: Sequence[TriedSegment], budget: SizeBudget, scale: RateScale) -> Mapping[int, Fraction]:
    """Return the segments to encode again, with their new CRFs; none if the film's size is right or cannot be improved.

    If the size is far from the budget, all CRFs change. Otherwise some change by at most ``scale.near``, so that as few
    segments as possible are encoded again. The predicted size is never above the budget, unless no CRF is high enough.
    """
    total = sum(each.last.size_bytes for each in film)
    if budget.least <= total <= budget.most or not film:
        return {}
    film_scale = measured(film, scale)
    shift = film_scale.halving_crfs * _log2(Fraction(max(1, total), max(1, budget.aim)))
    slopes = {each.segment: measured([each], film_scale) for each in film}
    chosen = _Choice(film, slopes, scale)
    if abs(shift) > scale.near:
        chosen.move_all(shift)
    chosen.fill(budget)
    return chosen.changed()


class _Choice:
    """The CRFs chosen so far, and the sizes predicted for them."""

    def __init__(self, film: Sequence[TriedSegment], slopes: Mapping[int, RateScale], scale: RateScale) -> None:
        self._film = {each.segment: each.last for each in film}
        self._slopes = slopes
        self._scale = scale
        self._crfs = {number: each.crf for number, each in self._film.items()}
        self._sizes = {number: each.size_bytes for number, each in self._film.items()}
        self._total = sum(self._sizes.values())

    def changed(self) -> Mapping[int, Fraction]:
        """Return the new CRF of each segment whose CRF changes."""
        return {n: crf for n, crf in sorted(self._crfs.items()) if crf != self._film[n].crf}

    def move_all(self, shift: Fraction) -> None:
        """Add ``shift`` to all CRFs, within the encoder's limits."""
        for number, crf in list(self._crfs.items()):
            self._put(number, self._scale.on_grid(crf + shift))

    def fill(self, budget: SizeBudget) -> None:
        """Change CRFs until the film's predicted size is about the budget's ``aim``, and at most its ``most``."""
        is_over = self._total > budget.most
        if is_over or self._total < budget.least:
            for number in self._order(is_over=is_over):
                self._move(number, abs(self._total - budget.aim), is_over=is_over)
        while self._total > budget.most and (last := self._last_step(self._total - budget.most)) is not None:
            self._put(last, self._crfs[last] + self._scale.step)

    def _order(self, *, is_over: bool) -> Sequence[int]:
        """Return the segments in the order in which their CRFs change: by CRF; with equal CRFs, the largest is first.

        If the film is too large, the lowest CRF is first, otherwise the highest.
        """
        sign = 1 if is_over else -1
        return sorted(self._crfs, key=lambda n: (sign * self._crfs[n], -self._sizes[n], n))

    def _move(self, number: int, wanted_bytes: int, *, is_over: bool) -> None:
        """Change a segment's CRF as far as allowed, but its predicted size by at most ``wanted_bytes``."""
        scale, crf, sign = self._scale, self._crfs[number], 1 if is_over else -1
        for steps in range(int(scale.near / scale.step), 0, -1):
            moved = crf + sign * steps * scale.step
            if (
                scale.best <= moved <= scale.worst
                and abs(self._size(number, moved) - self._sizes[number]) <= wanted_bytes
            ):
                self._put(number, moved)
                return

    def _last_step(self, excess_bytes: int) -> int | None:
        """Return the segment whose next step saves just enough bytes, else the most; None if no step saves any."""
        step, worst = self._scale.step, self._scale.worst
        losses = {n: self._sizes[n] - self._size(n, crf + step) for n, crf in self._crfs.items() if crf + step <= worst}
        enough = [n for n, loss in losses.items() if loss >= excess_bytes]
        if enough:
            return min(enough, key=lambda n: (losses[n], n))
        return max((n for n, loss in losses.items() if loss > 0), key=lambda n: (losses[n], -n), default=None)

    def _put(self, number: int, crf: Fraction) -> None:
        self._total -= self._sizes[number]
        self._crfs[number], self._sizes[number] = crf, self._size(number, crf)
        self._total += self._sizes[number]

    def _size(self, number: int, crf: Fraction) -> int:
        return predicted_bytes(self._film[number], crf, self._slopes[number].halving_crfs)


def predicted_bytes(encoded: SizeTry, crf: Fraction, halving_crfs: Fraction) -> int:
    """Return the size that a segment would have at another CRF."""
    if crf == encoded.crf:
        return encoded.size_bytes
    power = _CONTEXT.exp(_CONTEXT.multiply(_decimal((encoded.crf - crf) / halving_crfs), _LN2))
    return int(encoded.size_bytes * Fraction(power))


def _apart(segment: TriedSegment) -> tuple[SizeTry, SizeTry] | None:
    """Return the latest encoding whose CRF is far enough from the last one's, and the last one; None if no CRF is."""
    last = segment.last
    others = [each for each in segment.tries if abs(each.crf - last.crf) >= _LEAST_APART]
    return (others[-1], last) if others else None


def _with_slope(scale: RateScale, apart: Fraction, ratio: Fraction) -> RateScale:
    halvings = _log2(ratio)
    usual = scale.halving_crfs
    slope = usual * 2 if halvings <= 0 else Fraction(round(apart / halvings * _SLOPE_STEPS), _SLOPE_STEPS)
    slope = min(max(slope, usual / 2), usual * 2)
    return replace(scale, halving_crfs=slope)


def _log2(value: Fraction) -> Fraction:
    return Fraction(_CONTEXT.divide(_CONTEXT.ln(_decimal(value)), _LN2))


def _decimal(value: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
