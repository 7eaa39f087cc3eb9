"""When stills are taken."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import UsageError
from codecfleet.jobs.stills.moments import Moment, at_middles, at_multiples, at_scenes
from codecfleet.jobs.stills.spec import STILLS_MOST

SECONDS = st.fractions(Fraction(1, 1000), 100, max_denominator=90_000)


def _covers(moments: tuple[Moment, ...], begin_s: Fraction, end_s: Fraction) -> bool:
    """Return whether the spans lead from the beginning to the end, and each holds its moment."""
    adjoin = all(left.end_s == right.begin_s for left, right in pairwise(moments))
    inside = all(each.begin_s <= each.at_s < each.end_s for each in moments)
    return adjoin and inside and (moments[0].begin_s, moments[-1].end_s) == (begin_s, end_s)


@given(SECONDS, SECONDS, SECONDS)
def test_multiples_are_exact(every_s: Fraction, begin_s: Fraction, length_s: Fraction) -> None:
    """Every multiple before the end is there, exactly, and no other."""
    end_s = begin_s + min(length_s, every_s * 50)
    moments = at_multiples(every_s, begin_s, end_s)
    assert [each.at_s for each in moments] == [begin_s + n * every_s for n in range(len(moments))]
    assert moments[-1].at_s < end_s <= moments[-1].at_s + every_s
    assert _covers(moments, begin_s, end_s)


@given(st.integers(1, 60), SECONDS, SECONDS)
def test_middles_are_evenly_spaced(count: int, begin_s: Fraction, length_s: Fraction) -> None:
    """As many as were asked for, in the middles of equal parts."""
    moments = at_middles(count, begin_s, begin_s + length_s)
    assert len(moments) == count
    assert all(each.at_s - each.begin_s == each.end_s - each.at_s == length_s / count / 2 for each in moments)
    assert _covers(moments, begin_s, begin_s + length_s)


@given(st.lists(SECONDS, min_size=1, unique=True))
def test_scenes_last_until_the_next(starts_s: list[Fraction]) -> None:
    """A scene's still stands for all of it."""
    starts_s.sort()
    moments = at_scenes(starts_s, starts_s[-1] + 1)
    assert [each.at_s for each in moments] == starts_s
    assert _covers(moments, starts_s[0], starts_s[-1] + 1)


@given(st.integers(-(10**12), 10**12), st.fractions(Fraction(1, 10**6), 1), SECONDS)
def test_a_moment_is_the_latest_tick_not_after_it(first: int, time_base: Fraction, at_s: Fraction) -> None:
    """No float comes between a moment and the source's clock."""
    ticks = Moment(at_s, at_s, at_s).ticks(first, time_base)
    assert (ticks - first) * time_base <= at_s < (ticks - first + 1) * time_base


def test_too_many_are_refused() -> None:
    """A step that is far too short ends in one line before any work."""
    with pytest.raises(UsageError, match="more than 100,000"):
        at_multiples(Fraction(1, 1000), Fraction(0), Fraction(STILLS_MOST + 1, 1000))
    with pytest.raises(UsageError, match="more than 100,000"):
        at_scenes([Fraction(n) for n in range(STILLS_MOST + 1)], Fraction(STILLS_MOST + 1))
