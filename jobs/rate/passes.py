"""The passes of a job that has to reach a rate: which segments to encode with which CRF, and when to stop.

    SAMPLE: some segments at one CRF ──▶ FILM: all segments at another ──▶ ADJUST: some segments again, at most 4 times

Each decision is a pure function of the sizes that earlier passes reached. These sizes are in the journal, so a
continued job and a job on other workers decide the same.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from .allocation import SizeBudget, SizeTry, TriedSegment, film_crf, moves
from .goal import RateGoal

SAMPLE: Final = 0
FILM: Final = 1
ADJUST: Final = 2
MOST_ADJUSTED: Final = 4
"""How many passes may adjust the film; the first may encode all segments again, the others a few."""
BUCKET: Final = ADJUST + MOST_ADJUSTED
"""The number of the pass for segments that would empty the leaky bucket: the join encodes them again."""


@dataclass(frozen=True, slots=True)
class PassTry:
    """One encoding of a segment in a pass; ``until`` is the last planned segment that it covers."""

    number: int
    until: int
    tried: SizeTry


@dataclass(frozen=True, slots=True)
class RatePass:
    """One pass: it encodes these segments at their CRFs, unless an earlier run of the job did so in this pass."""

    number: int
    crfs: Mapping[int, Fraction]


async def run_passes(
    goal: RateGoal,
    *,
    encode: Callable[[RatePass], Awaitable[None]],
    tries: Callable[[], Mapping[int, tuple[PassTry, ...]]],
    other_bytes: Callable[[int], Awaitable[int]],
) -> SizeBudget:
    """Run all passes of one job, and return the budget of the last pass.

    Args:
        goal: the rate or the size that the film has to reach.
        encode: runs a pass.
        tries: returns the encodings of each encoded segment, in order.
        other_bytes: takes the number of the last pass, and returns the size of everything in the file but pictures;
            after the sample, this is a guess.
    """
    await encode(RatePass(SAMPLE, dict.fromkeys(goal.sample, goal.first_crf)))
    budget = goal.budget(await other_bytes(SAMPLE))
    crf = crf_of_film(goal, tries(), budget)
    await encode(RatePass(FILM, dict.fromkeys(range(len(goal.weights)), crf)))
    for number in range(ADJUST, ADJUST + MOST_ADJUSTED):
        budget = goal.budget(await other_bytes(number - 1))
        changed = adjusted(goal, tries(), budget, number)
        if not changed:
            break
        await encode(RatePass(number, changed))
    return budget


def crf_of_film(goal: RateGoal, tries: Mapping[int, tuple[PassTry, ...]], budget: SizeBudget) -> Fraction:
    """Return the CRF of the pass over the film, from the sample."""
    sample = {segment: each for segment, made in tries.items() for each in made if each.number == SAMPLE}
    part = goal.part({segment: each.until for segment, each in sample.items()})
    total = sum(each.tried.size_bytes for each in sample.values())
    return film_crf(total, goal.first_crf, part, budget, goal.scale)


def adjusted(
    goal: RateGoal, tries: Mapping[int, tuple[PassTry, ...]], budget: SizeBudget, number: int
) -> Mapping[int, Fraction]:
    """Return the segments that pass ``number`` encodes again, with their CRFs, from the passes before it."""
    film = []
    for segment, made in tries.items():
        earlier = [each for each in made if each.number < number]
        same = tuple(each.tried for each in earlier if each.until == earlier[-1].until)
        if same:
            film.append(TriedSegment(segment, same))
    return moves(film, budget, goal.scale)
