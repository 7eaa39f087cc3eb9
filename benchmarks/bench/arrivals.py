"""Days on which work arrives, made from a seed: evenly, in a wave, in bursts, all at once, file by file, or rarely."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import cos, pi
from random import Random
from typing import Final

from .demand_day import Arrival

DAY_S: Final = 86_400.0
SEGMENT_FRAMES: Final = 3000
Days = Mapping[str, Callable[[], list[Arrival]]]


def days(kinds: Sequence[str], jobs: int, segments: int, seed: int = 1) -> Days:
    """Return days by name: about ``jobs`` jobs of about ``segments`` segments each, of random kinds."""

    def random() -> Random:
        return Random(seed)  # noqa: S311 - a repeatable choice

    return {
        "even": lambda: list(_even(kinds, jobs, segments, random())),
        "daily wave": lambda: list(_wave(kinds, 2 * jobs, segments, random())),
        "bursts": lambda: list(_bursts(kinds, jobs, segments, random())),
        "one batch": lambda: [Arrival(3600.0, kind, jobs * segments // len(kinds), SEGMENT_FRAMES) for kind in kinds],
        "files of a batch": lambda: [Arrival(3600.0, kinds[-1], 12, SEGMENT_FRAMES, files=10 * jobs)],
        "trickle": lambda: list(_even(kinds, max(1, jobs // 20), 1, random())),
    }


def _even(kinds: Sequence[str], jobs: int, segments: int, random: Random) -> Iterator[Arrival]:
    """Yield jobs with exponential intervals between them: a Poisson process."""
    at_s = random.expovariate(jobs / DAY_S)
    while at_s < DAY_S:
        yield _job(at_s, kinds, segments, random)
        at_s += random.expovariate(jobs / DAY_S)


def _job(at_s: float, kinds: Sequence[str], segments: int, random: Random) -> Arrival:
    """Return a job of half to one and a half times the usual length; one in four has a deadline."""
    count = random.randint(max(1, segments // 2), max(1, segments * 3 // 2))
    within_s = 2400.0 if random.random() < 0.25 else None  # noqa: PLR2004 - a quarter
    return Arrival(at_s, random.choice(kinds), count, SEGMENT_FRAMES, within_s)


def _wave(kinds: Sequence[str], jobs: int, segments: int, random: Random) -> Iterator[Arrival]:
    """Yield about half of the jobs: every job at noon, fewer towards midnight, none at midnight."""
    for each in _even(kinds, jobs, segments, random):
        if random.random() < (1 - cos(2 * pi * each.at_s / DAY_S)) / 2:
            yield each


def _bursts(kinds: Sequence[str], jobs: int, segments: int, random: Random) -> Iterator[Arrival]:
    """Yield an eighth of the jobs every three hours, spread over five minutes."""
    for burst in range(8):
        for _ in range(jobs // 8):
            yield _job(3600.0 + burst * 10_800.0 + random.random() * 300, kinds, segments, random)
