"""Chooses the CRF to try next in a search, from the levels that earlier tries reached. Pure and exact.

All values are integers and fractions, so the choice is the same on every machine. A sample of a segment's pictures is
encoded at most twice, which tells where the target lies. Then the whole segment is encoded, and again while it misses
the target, up to ``MOST_TRIES`` encodings together. A short segment has no sample; it is encoded whole each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

MOST_TRIES: Final = 4
MOST_SAMPLED: Final = 2
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


@dataclass(frozen=True, slots=True)
class Goal:
    """The level to reach; a level that differs by at most ``near_mdb`` is near enough."""

    level_mdb: int
    near_mdb: int

    def miss_mdb(self, tried: Try) -> int:
        """Return how far above the goal a try is; negative if the try is below the goal."""
        return tried.level_mdb - self.level_mdb

    def is_met(self, tries: Sequence[Try]) -> bool:
        """Return whether a try is near enough."""
        return any(abs(self.miss_mdb(each)) <= self.near_mdb for each in tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrfScale:
    """The CRFs from which a search chooses."""

    start: Fraction  # where a search begins
    best: Fraction
    worst: Fraction
    step: Fraction
    mdb_per_crf: int  # how far the level usually falls from one CRF to the next

    def __post_init__(self) -> None:
        """Check that the limits are on the grid."""
        if any(each % self.step for each in (self.best, self.worst)):
            raise ValueError("a limit is not a multiple of the step")

    def on_grid(self, crf: Fraction) -> Fraction:
        """Return the nearest CRF that the encoder takes, within the limits."""
        return min(max(round(crf / self.step) * self.step, self.best), self.worst)


@dataclass(frozen=True, slots=True)
class NextTry:
    """What to encode next."""

    crf: Fraction
    is_whole: bool


def next_try(tries: Sequence[Try], goal: Goal, scale: CrfScale, *, has_sample: bool) -> NextTry | None:
    """Return the next encoding; None if the search is over, so that ``chosen`` returns the result."""
    whole = [each for each in tries if each.is_whole]
    sampled = [each for each in tries if not each.is_whole]
    if has_sample and not whole:
        crf = _towards(sampled, goal, scale, ())
        is_known = any(each.crf == crf for each in sampled)
        if len(sampled) < MOST_SAMPLED and not is_known and not goal.is_met(sampled):
            return NextTry(crf, is_whole=False)
        return NextTry(crf, is_whole=True)
    crf = _towards(whole, goal, scale, sampled)
    if len(tries) == MOST_TRIES or goal.is_met(whole) or any(each.crf == crf for each in whole):
        return None
    return NextTry(crf, is_whole=True)


def chosen(tries: Sequence[Try], goal: Goal) -> int:
    """Return the index of the whole encoding that is nearest to the target; of two equally near, the better one.

    Of encodings with the same level, the one with the highest CRF counts as the nearest: a still picture may look the
    same with many CRFs. A level more than 1 dB too low counts as twice as far: the quality of a still picture may jump
    from one CRF to the next.
    """
    whole = [each for each in tries if each.is_whole]
    misses = [goal.miss_mdb(each) for each in whole]
    far = [-2 * miss if miss < -_FAR_MDB else abs(miss) for miss in misses]
    return min(range(len(whole)), key=lambda index: (far[index], -misses[index], -whole[index].crf))


def sample_of(frames: int, frame_bytes: int) -> tuple[range, ...]:
    """Return runs of consecutive pictures that stand for a segment's ``frames`` pictures; none for a short segment.

    The sample is kept in memory, so large pictures get a shorter sample.
    """
    run = min(_SAMPLE_FRAMES, sample_bytes(frame_bytes) // frame_bytes) // SAMPLE_RUNS
    if frames < 2 * SAMPLE_RUNS * run:
        return ()
    starts = ((2 * number + 1) * frames // (2 * SAMPLE_RUNS) - run // 2 for number in range(SAMPLE_RUNS))
    return tuple(range(start, start + run) for start in starts)


def sample_bytes(frame_bytes: int) -> int:
    """Return the most memory that a sample takes."""
    return max(min(_SAMPLE_BYTES, _SAMPLE_FRAMES * frame_bytes), SAMPLE_RUNS * _LEAST_RUN_FRAMES * frame_bytes)


def _towards(tries: Sequence[Try], goal: Goal, scale: CrfScale, others: Sequence[Try]) -> Fraction:
    """Return the CRF at which the line through the tries nearest to the target reaches the target.

    With one try, the slope is that of ``others``, or the usual slope. Without tries, ``others`` determine the CRF;
    without ``others``, the CRF is the start of the scale.
    """
    if not tries:
        return _towards(others, goal, scale, ()) if others else scale.on_grid(scale.start)
    above = max((each for each in tries if goal.miss_mdb(each) >= 0), key=lambda each: each.crf, default=None)
    below = min((each for each in tries if goal.miss_mdb(each) < 0), key=lambda each: each.crf, default=None)
    if above is not None and below is not None and above.crf < below.crf:
        part = Fraction(goal.miss_mdb(above), above.level_mdb - below.level_mdb)
        found = scale.on_grid(above.crf + part * (below.crf - above.crf))
        inside = below.crf - above.crf > scale.step
        return min(max(found, above.crf + scale.step), below.crf - scale.step) if inside else above.crf
    # Where the quality is the same at all CRFs, the search goes on from the end that is nearest to the target.
    side = -1 if below is None else 1
    first, *rest = sorted(tries, key=lambda each: (abs(goal.miss_mdb(each)), side * each.crf))
    slope = _slope((first, *rest[:1]) if rest else others, scale)
    return scale.on_grid(first.crf + goal.miss_mdb(first) / slope)


def _slope(tries: Sequence[Try], scale: CrfScale) -> Fraction:
    """Return by how much the level falls from one CRF to the next, in thousandths of a dB."""
    usual = Fraction(scale.mdb_per_crf)
    if len(tries) < 2 or tries[0].crf == tries[1].crf:  # noqa: PLR2004 - a line has two points
        return usual
    slope = -Fraction(tries[1].level_mdb - tries[0].level_mdb) / (tries[1].crf - tries[0].crf)
    return min(max(slope, usual * _FLATTEST), usual * _STEEPEST)
