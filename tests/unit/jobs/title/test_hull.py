"""The ladder for a film: the convex hull of its probes, and the points of it that are chosen."""

from fractions import Fraction
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.title.hull import APART, RatePoint, Slot, Titled, filled, titled, upper_hull

SIZES = ((1920, 1080), (1280, 720), (640, 360))
CRFS = (17, 22, 27, 32)


@st.composite
def probed(draw: st.DrawFn) -> list[RatePoint]:
    """Draw the probes of each size; fewer bits at a higher CRF, and any quality."""
    found = []
    for size in SIZES:
        bps = sorted(draw(st.lists(st.integers(20_000, 9_000_000), min_size=4, max_size=4, unique=True)), reverse=True)
        quality = draw(st.lists(st.fractions(20, 60, max_denominator=1000), min_size=4, max_size=4))
        found += [RatePoint(*each, size, crf) for crf, each in zip(CRFS, zip(bps, quality, strict=True), strict=True)]
    return found


SLOTS = st.lists(
    st.tuples(st.sampled_from(SIZES), st.none() | st.integers(100_000, 8_000_000), st.sampled_from([22, 25])),
    min_size=1,
    max_size=5,
).map(lambda made: [Slot(name=str(n), size=s, stated_bps=bps, crf=crf) for n, (s, bps, crf) in enumerate(made)])


@given(probed())
def test_more_bits_look_better_and_ever_less_so(probes: list[RatePoint]) -> None:
    """Along the hull quality rises, its slope falls, and no point lies above it."""
    points = list(filled(probes))
    hull = upper_hull(points)
    assert set(hull) <= set(points)
    assert all(a.bps < b.bps and a.quality < b.quality for a, b in pairwise(hull))
    slopes = [(b.quality - a.quality) / (b.bps - a.bps) for a, b in pairwise(hull)]
    assert all(a > b for a, b in pairwise(slopes))
    for point in points:
        right = next((n for n, each in enumerate(hull) if each.bps >= point.bps), None)
        if right is None:
            assert point.quality <= hull[-1].quality
        elif right:
            a, b = hull[right - 1 : right + 1]
            assert point.quality <= a.quality + (b.quality - a.quality) * Fraction(point.bps - a.bps, b.bps - a.bps)
        else:
            assert point.quality <= hull[0].quality


@given(probed(), SLOTS, st.none() | st.fractions(20, 60, max_denominator=100), st.randoms())
def test_the_order_of_slots_and_probes_does_not_matter(
    probes: list[RatePoint], slots: list[Slot], goal: Fraction | None, random: Random
) -> None:
    """Workers may finish probes in any order."""
    expected = titled(slots, probes, goal)
    random.shuffle(probes)
    random.shuffle(slots)
    assert titled(slots, probes, goal) == expected


@given(probed(), SLOTS, st.none() | st.fractions(20, 60, max_denominator=100))
def test_renditions_are_points_of_the_hull_that_are_apart(
    probes: list[RatePoint], slots: list[Slot], goal: Fraction | None
) -> None:
    """Each has clearly fewer bits than the one before, and at most those of its slot."""
    made = titled(slots, probes, goal)
    assert set(list(made.chosen.values())[1:]) <= set(made.hull)
    assert all(a.bps >= APART * b.bps for a, b in pairwise(made.chosen.values()))
    stated = {slot.name: slot.stated_bps for slot in slots}
    cheapest = made.hull[0]
    for name, point in made.chosen.items():
        assert point == cheapest or point.bps <= (stated[name] or point.bps)


@given(probed(), st.none() | st.fractions(20, 60, max_denominator=100))
def test_the_first_rendition_is_the_cheapest_with_its_goal(probes: list[RatePoint], goal: Fraction | None) -> None:
    """Also where the hull has no point between two far ones; without a goal, the preset's own point has it."""
    made = titled([Slot(name="one", size=SIZES[0], stated_bps=None, crf=CRFS[1])], probes, goal)
    own = next(each for each in probes if (each.size, each.crf) == (SIZES[0], CRFS[1]))
    allowed = [each for each in filled(probes) if each.bps <= own.bps]
    having = [each.bps for each in allowed if each.quality >= made.goal]
    chosen = made.chosen["one"]
    assert goal is not None or own.bps in having
    if having:
        assert (chosen.bps, chosen.quality >= made.goal) == (min(having), True)
    else:
        assert chosen.quality == max(each.quality for each in allowed)


def film(**bps: tuple[int, int, int, int]) -> list[RatePoint]:
    """Return probes of sizes, with a quality that falls by a point for each CRF, from 50, 48 and 30."""
    best = dict(zip(("full", "half", "third"), (50, 48, 30), strict=True))
    sizes = dict(zip(best, SIZES, strict=True))
    return [
        RatePoint(each, Fraction(best[name] - crf + CRFS[0]), sizes[name], crf)
        for name, taken in bps.items()
        for each, crf in zip(taken, CRFS, strict=True)
    ]


def ladder(*stated: int | None, crf: int | None = 22) -> list[Slot]:
    """Return the slots of as many sizes."""
    return [
        Slot(name=f"{size[1]}p", size=size, stated_bps=bps, crf=crf) for size, bps in zip(SIZES, stated, strict=False)
    ]


def made(found: Titled) -> list[tuple[str, int, int]]:
    """Return the slot, the lines and the CRF of each rendition."""
    return [(name, point.size[1], point.crf) for name, point in found.chosen.items()]


def test_a_simple_film_keeps_its_size_with_fewer_bits() -> None:
    """Where the full size looks best with any bits, each rendition has it."""
    simple = film(full=(1000, 500, 250, 125), half=(900, 450, 225, 112), third=(800, 400, 200, 100))
    found = titled(ladder(8000, 4000, 2000), simple, None)
    assert found.goal == 45
    assert made(found) == [("1080p", 1080, 22), ("720p", 1080, 27), ("360p", 1080, 32)]


def test_a_hard_film_gets_smaller_pictures() -> None:
    """If the largest size would need more bits than its slot has, the first rendition is smaller."""
    hard = film(full=(8000, 4000, 2000, 1000), half=(2000, 1000, 500, 250), third=(200, 100, 50, 25))
    assert made(titled(ladder(4000, 2000, 100), hard, Fraction(48)))[0] == ("1080p", 720, 17)
    assert made(titled(ladder(1500, 700, 100), hard, Fraction(48)))[0] == ("1080p", 720, 20)


def test_without_bitrates_each_rendition_has_half_of_the_one_before() -> None:
    """And none more than its own CRF takes; a rendition without fewer bits than the last is left out."""
    plain = film(full=(1600, 800, 400, 200), half=(1500, 750, 375, 188), third=(1400, 700, 350, 175))
    assert made(titled(ladder(None, None, None), plain, None)) == [
        ("1080p", 1080, 22),
        ("720p", 1080, 27),
        ("360p", 1080, 32),
    ]
    assert made(titled(ladder(None, None, None), plain, Fraction(35))) == [("1080p", 1080, 32)]


def test_a_bitrate_is_the_limit() -> None:
    """A slot with a bitrate wants what it can reach within it."""
    plain = film(full=(1600, 800, 400, 200))
    found = titled(ladder(900, crf=None), plain, None)
    assert [point.bps <= 900 for point in found.chosen.values()] == [True]
    assert made(found) == [("1080p", 1080, 22)]
