"""The CRFs that give a film its size: within the budget, within the scale, in any order of the segments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.jobs.rate.allocation import (
    RateScale,
    SizeBudget,
    SizeTry,
    TriedSegment,
    film_crf,
    first_crf,
    measured,
    moves,
    predicted_bytes,
)
from codecfleet.jobs.rate.goal import RateGoal, sampled
from codecfleet.jobs.rate.passes import ADJUST, FILM, SAMPLE, PassTry, RatePass, run_passes

FINE = RateScale.of(PROFILES[Codec.H264])
WHOLE = RateScale.of(PROFILES[Codec.AV1])
SCALES = st.sampled_from([FINE, WHOLE])
SIZES = st.lists(st.integers(2_000, 3_000_000), min_size=1, max_size=40)
CRFS = st.integers(28, 40).map(Fraction)


def film(sizes: list[int], crf: Fraction) -> list[TriedSegment]:
    """Return segments that were encoded once."""
    return [TriedSegment(number, (SizeTry(crf, size),)) for number, size in enumerate(sizes)]


def predicted(segments: list[TriedSegment], changed: Mapping[int, Fraction], scale: RateScale) -> int:
    """Return the film's size after a change."""
    return sum(
        predicted_bytes(each.last, changed.get(each.segment, each.last.crf), scale.halving_crfs) for each in segments
    )


@given(SIZES, CRFS, SCALES, st.fractions(Fraction(1, 3), 3, max_denominator=100))
def test_the_predicted_size_is_within_the_budget(
    sizes: list[int], crf: Fraction, scale: RateScale, part: Fraction
) -> None:
    """It is never above, and below by at most the slack or the smallest step of any segment."""
    segments, budget = film(sizes, crf), SizeBudget(int(sum(sizes) * part))
    changed = moves(segments, budget, scale)
    total = predicted(segments, changed, scale)
    assert all(scale.best <= each <= scale.worst and each % scale.step == 0 for each in changed.values())
    assert total <= budget.most
    largest_step = max(sizes) * part * (2 ** float(scale.step / scale.halving_crfs) - 1) * 2
    assert total >= budget.least - largest_step - len(sizes)


@given(SIZES, CRFS, SCALES, st.fractions(Fraction(1, 3), 3, max_denominator=100), st.randoms())
def test_the_order_of_the_segments_is_irrelevant(
    sizes: list[int], crf: Fraction, scale: RateScale, part: Fraction, random: Random
) -> None:
    """Segments are told apart by their numbers."""
    segments, budget = film(sizes, crf), SizeBudget(int(sum(sizes) * part))
    shuffled = segments[:]
    random.shuffle(shuffled)
    assert moves(shuffled, budget, scale) == moves(segments, budget, scale)


@given(SIZES, CRFS, SCALES, st.lists(st.integers(10_000, 90_000_000), min_size=2, max_size=2).map(sorted))
def test_more_bits_never_mean_a_higher_crf(sizes: list[int], crf: Fraction, scale: RateScale, two: list[int]) -> None:
    """The film's CRF falls with its budget, and so does that with which a sample begins."""
    less, more = (film_crf(sum(sizes), crf, Fraction(1), SizeBudget(most), scale) for most in two)
    # A sample keeps its own CRF if that is near enough.
    assert less >= more - scale.near / 2
    assert first_crf(Fraction(two[0], 10**6), scale) >= first_crf(Fraction(two[1], 10**6), scale)


@given(SIZES, CRFS, SCALES)
def test_a_film_of_the_right_size_stays(sizes: list[int], crf: Fraction, scale: RateScale) -> None:
    """Nothing is encoded again for less than the slack."""
    assert moves(film(sizes, crf), SizeBudget(sum(sizes) + sum(sizes) // 200), scale) == {}


def test_a_small_difference_moves_few_segments() -> None:
    """A twentieth of the bits is found in the largest segments; the CRFs stay close together."""
    segments = film([100_000] * 40, Fraction(24))
    changed = moves(segments, SizeBudget(3_800_000), FINE)
    assert 0 < len(changed) <= 17
    assert all(24 < crf <= 25 for crf in changed.values())


def test_a_size_out_of_reach_ends_at_the_limit() -> None:
    """Once all segments have the highest CRF, nothing more can be done."""
    segments = film([100_000] * 3, Fraction(24))
    assert set(moves(segments, SizeBudget(100), FINE).values()) == {FINE.worst}
    assert moves(film([100_000] * 3, FINE.worst), SizeBudget(100), FINE) == {}


def test_two_encodings_tell_the_slope() -> None:
    """It is measured over all segments together, and limited to twice and half of the usual one."""
    tries = (SizeTry(Fraction(20), 400_000), SizeTry(Fraction(26), 200_000))
    assert measured([TriedSegment(0, tries)], FINE).halving_crfs == 6
    steep = (SizeTry(Fraction(20), 400_000), SizeTry(Fraction(26), 20_000))
    assert measured([TriedSegment(0, steep)], FINE).halving_crfs == FINE.halving_crfs / 2
    near = (SizeTry(Fraction(20), 400_000), SizeTry(Fraction("20.5"), 300_000))
    assert measured([TriedSegment(0, near)], FINE) == FINE


@dataclass
class FakeFilm:
    """A film whose segments shrink with the CRF by a law of their own; ``encoded`` has what each pass encoded."""

    scale: RateScale
    sizes_at_20: list[int]
    halvings: list[float]
    tries: dict[int, tuple[PassTry, ...]] = field(default_factory=dict)
    encoded: list[list[int]] = field(default_factory=list)
    ends_after: int | None = None  # how many segments are encoded before the job is killed

    def size(self, number: int, crf: Fraction) -> int:
        """Return the size of a segment."""
        return 200 + int(self.sizes_at_20[number] * 2 ** (float(20 - crf) / self.halvings[number]))

    async def encode(self, wanted: RatePass) -> None:
        """Encode what the pass has not encoded; from its last segment to its first, which must not matter."""
        self.encoded.append([])
        for number, crf in reversed(list(wanted.crfs.items())):
            made = self.tries.get(number, ())
            is_film = wanted.number == FILM and made and (made[-1].number >= FILM or made[-1].tried.crf == crf)
            if is_film or any(each.number == wanted.number for each in made):
                continue
            if self.ends_after is not None:
                self.ends_after -= 1
                if self.ends_after < 0:
                    raise KeyboardInterrupt
            self.encoded[-1].append(number)
            self.tries[number] = (*made, PassTry(wanted.number, number, SizeTry(crf, self.size(number, crf))))

    async def other_bytes(self, _number: int) -> int:
        """Return the size of the sound."""
        return 5_000

    def goal(self, total: int) -> RateGoal:
        """Return the goal of a size."""
        weights = tuple(1 + size // 3 for size in self.sizes_at_20)
        first = first_crf(Fraction(1, 12), self.scale)
        return RateGoal(
            scale=self.scale,
            bitrate_bps=None,
            size_bytes=total,
            duration_s=Fraction(20),
            first_crf=first,
            sample=sampled(len(weights)),
            weights=weights,
        )

    def run(self, goal: RateGoal) -> SizeBudget:
        """Run all passes."""
        passes = run_passes(goal, encode=self.encode, tries=lambda: self.tries, other_bytes=self.other_bytes)
        return asyncio.run(passes)

    @property
    def total(self) -> int:
        """The film's size."""
        return sum(made[-1].tried.size_bytes for made in self.tries.values())


@st.composite
def films(draw: st.DrawFn, scale: RateScale, least: int = 1) -> FakeFilm:
    """Return films of calm and busy segments."""
    sizes = draw(st.lists(st.integers(20_000, 2_000_000), min_size=least, max_size=60))
    near = st.floats(0.75, 1.35).map(lambda part: part * float(scale.halving_crfs))
    return FakeFilm(scale, sizes, draw(st.lists(near, min_size=len(sizes), max_size=len(sizes))))


@given(films(FINE), st.floats(0.2, 1.5))
def test_the_passes_reach_the_size(made: FakeFilm, part: float) -> None:
    """The film has at most its size, and at least 99 % less a step of a segment, whatever the slopes are."""
    goal = made.goal(int(sum(made.sizes_at_20) * part) + 5_000)
    budget = made.run(goal)
    step_bytes = min(each[-1].tried.size_bytes for each in made.tries.values()) / 60
    assert budget.least - step_bytes <= made.total <= budget.most
    assert len(made.encoded[SAMPLE]) == len(goal.sample)
    crfs = [each[-1].tried.crf for each in made.tries.values()]
    assert max(crfs) - min(crfs) <= 4 * FINE.near


@given(films(WHOLE, 12), st.floats(0.2, 1.5))
def test_whole_crfs_reach_the_size_with_many_segments(made: FakeFilm, part: float) -> None:
    """An encoder that takes only whole CRFs is never above the size, and misses it by less than a step of a segment."""
    budget = made.run(made.goal(int(sum(made.sizes_at_20) * part) + 5_000))
    smallest = min(each[-1].tried.size_bytes for each in made.tries.values())
    assert budget.least - smallest / 5 <= made.total <= budget.most


@given(films(FINE, 3), st.floats(0.3, 1.2), st.data())
def test_a_killed_job_goes_on_as_if_nothing_had_happened(made: FakeFilm, part: float, data: st.DataObject) -> None:
    """The encodings that are known decide; none is repeated, and all are the same."""
    goal = made.goal(int(sum(made.sizes_at_20) * part) + 5_000)
    whole = replace(made, tries={}, encoded=[])
    whole.run(goal)
    total = sum(map(len, whole.encoded))
    made.ends_after = data.draw(st.integers(0, total - 1))
    with pytest.raises(KeyboardInterrupt):
        made.run(goal)
    made.ends_after = None
    first = sum(map(len, made.encoded))
    made.encoded = []
    made.run(goal)
    assert made.tries == whole.tries
    assert first + sum(map(len, made.encoded)) == total


def test_a_sample_near_the_films_crf_is_kept() -> None:
    """Its segments are not encoded again in the pass over the film."""
    made = FakeFilm(FINE, [100_000] * 16, [5.0] * 16)
    goal = made.goal(16 * 66_000 + 5_000)  # CRF 23 gives it
    made.run(goal)
    assert goal.first_crf == 23
    assert len(made.encoded[FILM]) == 8
    assert {each[-1].number for each in made.tries.values()} <= {SAMPLE, FILM, ADJUST}


@pytest.mark.parametrize(("segments", "count"), [(1, 1), (8, 8), (9, 8), (64, 8), (800, 100)])
def test_a_sample_is_spread_over_the_film(segments: int, count: int) -> None:
    """No segment is in it twice, and its halves lie in the halves of the film."""
    sample = sampled(segments)
    assert len(set(sample)) == count
    assert all(0 <= number < segments for number in sample)
    assert sum(number < segments / 2 for number in sample) in ((count + 1) // 2, count // 2)
