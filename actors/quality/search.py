"""The search for a CRF: which one to try next, from the levels that earlier ones reached. Pure and exact.

All values are integers and fractions, so the choice is the same on every machine. A sample of a segment's pictures is
encoded at most twice, which tells where the target lies. Then the whole segment is encoded, and once more if it misses
the target. A short segment has no sample; it is encoded whole each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

MOST_TRIES: Final = 4
MOST_SAMPLED: Final = 2
NEAR_MDB: Final = 150
"""A level within this distance of the target is near enough."""
_FAR_MDB: Final = 1000
_STEEPEST, _FLATTEST = Fraction(3), Fraction(1, 2)  # limits of a slope, as multiples of the usual one
SAMPLE_RUNS: Final = 3
_SAMPLE_FRAMES: Final = 72
_SAMPLE_BYTES: Final = 192 << 20
_LEAST_RUN_FRAMES: Final = 4


@dataclass(frozen=True, slots=True)
class Try:
    """One encoding: its CRF, the level that it reached, in thousandths of a dB, and whether it is of all pictures."""

    crf: Fraction
    level_mdb: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CrfScale:
    """An encoder's CRF."""

    usual: Fraction  # where a search begins
    best: Fraction
    worst: Fraction
    step: Fraction
    mdb_per_crf: int  # how far the level usually falls from one CRF to the next

    def __post_init__(self) -> None:
        """Check that the limits are on the grid."""
        if any(each % self.step for each in (self.best, self.worst)):
            raise ValueError("the limits are between two steps")

    def on_grid(self, crf: Fraction) -> Fraction:
        """Return the nearest CRF that the encoder takes, within the limits."""
        return min(max(round(crf / self.step) * self.step, self.best), self.worst)


@dataclass(frozen=True, slots=True)
class NextTry:
    """What to encode next."""

    crf: Fraction
    is_whole: bool


def next_try(tries: Sequence[Try], goal_mdb: int, scale: CrfScale, *, has_sample: bool) -> NextTry | None:
    """Return the next encoding; None if one of ``tries``, that of ``chosen``, is the result."""
    whole = [each for each in tries if each.is_whole]
    sampled = [each for each in tries if not each.is_whole]
    if has_sample and not whole:
        crf = _towards(sampled, goal_mdb, scale, ())
        is_known = any(each.crf == crf for each in sampled)
        if len(sampled) < MOST_SAMPLED and not is_known and not _is_near(sampled, goal_mdb):
            return NextTry(crf, is_whole=False)
        return NextTry(crf, is_whole=True)
    crf = _towards(whole, goal_mdb, scale, sampled)
    if len(tries) == MOST_TRIES or _is_near(whole, goal_mdb) or any(each.crf == crf for each in whole):
        return None
    return NextTry(crf, is_whole=True)


def chosen(tries: Sequence[Try], goal_mdb: int) -> int:
    """Return which of the whole encodings, counted from 0, is nearest to the target; of equals, the lower CRF.

    One that is far below counts as twice as far: a still picture may jump in quality from one CRF to the next.
    """
    whole = [each for each in tries if each.is_whole]
    misses = [each.level_mdb - goal_mdb for each in whole]
    far = [-2 * miss if miss < -_FAR_MDB else abs(miss) for miss in misses]
    return min(range(len(whole)), key=lambda index: (far[index], whole[index].crf))


def sample_of(frames: int, frame_bytes: int) -> tuple[range, ...]:
    """Return the runs of consecutive pictures that stand for a segment's ``frames`` pictures; none if it is short.

    The sample is kept in memory, so pictures of many bytes have a shorter one.
    """
    run = min(_SAMPLE_FRAMES, sample_bytes(frame_bytes) // frame_bytes) // SAMPLE_RUNS
    if frames < 2 * SAMPLE_RUNS * run:
        return ()
    starts = ((2 * number + 1) * frames // (2 * SAMPLE_RUNS) - run // 2 for number in range(SAMPLE_RUNS))
    return tuple(range(start, start + run) for start in starts)


def sample_bytes(frame_bytes: int) -> int:
    """Return the most memory that a sample takes."""
    return max(min(_SAMPLE_BYTES, _SAMPLE_FRAMES * frame_bytes), SAMPLE_RUNS * _LEAST_RUN_FRAMES * frame_bytes)


def _is_near(tries: Sequence[Try], goal_mdb: int) -> bool:
    return any(abs(each.level_mdb - goal_mdb) <= NEAR_MDB for each in tries)


def _towards(tries: Sequence[Try], goal_mdb: int, scale: CrfScale, others: Sequence[Try]) -> Fraction:
    """Return the CRF at which the curve through the tries nearest to the target reaches the target.

    With one try, the slope is that of the ``others``, or the usual one. Without any, they say where to begin.
    """
    if not tries:
        return _towards(others, goal_mdb, scale, ()) if others else scale.on_grid(scale.usual)
    above = max((each for each in tries if each.level_mdb >= goal_mdb), key=lambda each: each.crf, default=None)
    below = min((each for each in tries if each.level_mdb < goal_mdb), key=lambda each: each.crf, default=None)
    if above is not None and below is not None and above.crf < below.crf:
        return _between(above, below, tries, goal_mdb, scale)
    first, *rest = sorted(tries, key=lambda each: (abs(each.level_mdb - goal_mdb), each.crf))
    slope = _slope((first, *rest[:1]) if rest else others, scale)
    return scale.on_grid(first.crf + (first.level_mdb - goal_mdb) / slope)


def _between(above: Try, below: Try, tries: Sequence[Try], goal_mdb: int, scale: CrfScale) -> Fraction:
    """Return where the parabola through both and the third nearest try, or else their line, reaches the target."""
    slope = (below.level_mdb - above.level_mdb) / (below.crf - above.crf)
    others = [each for each in tries if each not in (above, below)]
    bend = Fraction(0)
    if others:
        third = min(others, key=lambda each: (abs(each.level_mdb - goal_mdb), each.crf))
        rest = (third.level_mdb - below.level_mdb) / (third.crf - below.crf)
        bend = (rest - slope) / (third.crf - above.crf)
    first, last = (int(each.crf / scale.step) for each in (above, below))
    grid = [number * scale.step for number in range(first + 1, last)] or [above.crf]

    def miss(crf: Fraction) -> Fraction:
        return abs(above.level_mdb + (crf - above.crf) * (slope + bend * (crf - below.crf)) - goal_mdb)

    return min(grid, key=lambda crf: (miss(crf), crf))


def _slope(tries: Sequence[Try], scale: CrfScale) -> Fraction:
    """Return by how much the level falls from one CRF to the next, in thousandths of a dB."""
    usual = Fraction(scale.mdb_per_crf)
    if len(tries) < 2 or tries[0].crf == tries[1].crf:  # noqa: PLR2004 - a line has two points
        return usual
    slope = -Fraction(tries[1].level_mdb - tries[0].level_mdb) / (tries[1].crf - tries[0].crf)
    return min(max(slope, usual * _FLATTEST), usual * _STEEPEST)
