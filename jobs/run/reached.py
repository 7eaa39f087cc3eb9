"""Warns of segments that did not reach the target quality, with the reason."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from ...actors.encode.target import QualityTarget
from ...actors.quality.measuring import UNITS, goal_of, level_mdb, summary
from ...actors.segment.targeting import ReachedQuality
from ..report.report import Warning_

_FAR: Final = Fraction(4, 3)
"""A segment misses the target if it is further off than this many times ``near_mdb``, the search's tolerance."""


def target_warnings(
    target: QualityTarget, found: Sequence[ReachedQuality], maxrate_bps: int | None
) -> Iterator[Warning_]:
    """Yield a warning if segments are below the target, and one if some are above it."""
    measured = [each for each in found if each.values]
    goal = goal_of(target)
    misses = [((level_mdb(target, each.values) - goal.level_mdb) / goal.near_mdb, each) for each in measured]
    best, worst = target.crfs or (None, None)
    below = [each for miss, each in misses if miss < -_FAR]
    if below:
        limits = [] if maxrate_bps is None else ["--maxrate limits the bitrate"]
        limits += [f"CRF {best} is the lowest allowed"] if _any_at(below, best) else []
        yield _warning("target-missed", "below", target, below, len(measured), limits)
    above = [each for miss, each in misses if miss > _FAR]
    if above:
        limits = [f"CRF {worst} is the highest allowed"] if _any_at(above, worst) else []
        yield _warning("target-exceeded", "above", target, above, len(measured), limits)


def _any_at(found: Sequence[ReachedQuality], crf: int | None) -> bool:
    return crf is not None and any(Fraction(each.crf) == crf for each in found)


def _warning(  # noqa: PLR0917 - the parts of one sentence
    code: str, side: str, target: QualityTarget, found: Sequence[ReachedQuality], count: int, limits: Sequence[str]
) -> Warning_:
    reached = [summary(target.metric, each.values, target.percentile) / UNITS for each in found]
    most = float(max(abs(each - target.value) for each in reached))
    why = "; ".join(limits) or "no CRF came nearer in the allowed number of encodes"
    asked = f"{target.metric}:{float(target.value):g}"
    message = f"{len(found)} of {count} segments are up to {most:.3g}{target.metric.unit} {side} {asked}: {why}"
    return Warning_(code=code, message=message, checks=())
