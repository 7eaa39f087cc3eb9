"""The search for a CRF ends near its target, or at a limit, after few tries, on any machine alike."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.target import QualityTarget
from codecfleet.actors.quality.measuring import UNITS, above_usual_mdb, goal_of, level_mdb
from codecfleet.actors.quality.search import (
    MOST_TRIES,
    CrfScale,
    Goal,
    Try,
    chosen,
    next_try,
    sample_bytes,
    sample_of,
)

QUARTERS = CrfScale(start=Fraction(23), best=Fraction(10), worst=Fraction(45), step=Fraction(1, 4), mdb_per_crf=550)
NEAR_MDB = 150
Curve = Callable[[Fraction], int]


def searched(goal_mdb: int, whole: Curve, sample: Curve | None = None, scale: CrfScale = QUARTERS) -> list[Try]:
    """Return all tries of a search, where ``whole`` and ``sample`` give the level of a CRF."""
    tries: list[Try] = []
    while (step := next_try(tries, Goal(goal_mdb, NEAR_MDB), scale, has_sample=sample is not None)) is not None:
        curve = whole if step.is_whole or sample is None else sample
        tries.append(Try(step.crf, curve(step.crf), step.is_whole))
        assert len(tries) <= MOST_TRIES
    return tries


def found(tries: list[Try], goal_mdb: int) -> Try:
    """Return the whole encoding that a search keeps."""
    return [each for each in tries if each.is_whole][chosen(tries, Goal(goal_mdb, NEAR_MDB))]


def curve(at_23_mdb: int, slope_mdb: int, bend_mdb: int) -> Curve:
    """Return a falling level whose slope changes by ``bend_mdb`` from one CRF to the next."""
    return lambda crf: round(at_23_mdb - slope_mdb * (crf - 23) - Fraction(bend_mdb, 2) * (crf - 23) ** 2)


@given(
    at_23_mdb=st.integers(30_000, 50_000),
    slope_mdb=st.integers(300, 800),
    bend_mdb=st.integers(-8, 8),
    bias_mdb=st.integers(-600, 600),
    goal_mdb=st.integers(30_000, 50_000),
    has_sample=st.booleans(),
)
def test_a_smooth_curve_is_met(
    at_23_mdb: int, slope_mdb: int, bend_mdb: int, bias_mdb: int, goal_mdb: int, *, has_sample: bool
) -> None:
    """The result is near the target, or at a limit beyond which the target lies."""
    whole = curve(at_23_mdb, slope_mdb, bend_mdb)
    sample = curve(at_23_mdb + bias_mdb, slope_mdb, bend_mdb) if has_sample else None
    tries = searched(goal_mdb, whole, sample)
    assert tries == searched(goal_mdb, whole, sample)
    kept = found(tries, goal_mdb)
    half_step_mdb = -(-abs(whole(kept.crf) - whole(kept.crf + QUARTERS.step)) // 2)
    is_near = abs(kept.level_mdb - goal_mdb) <= NEAR_MDB + half_step_mdb
    assert (
        is_near
        or (kept.crf == QUARTERS.best and kept.level_mdb < goal_mdb)
        or (kept.crf == QUARTERS.worst and kept.level_mdb > goal_mdb)
    )


@given(
    falls=st.lists(st.integers(0, 4000), min_size=141, max_size=141),
    goal_mdb=st.integers(0, 60_000),
    has_sample=st.booleans(),
)
def test_any_falling_curve_ends(falls: list[int], goal_mdb: int, *, has_sample: bool) -> None:
    """Whatever the encoder does, tries are few, different and within the limits; only a worse one is nearer."""
    levels = [60_000 - sum(falls[:number]) for number in range(len(falls))]

    def level(crf: Fraction) -> int:
        return levels[int((crf - QUARTERS.best) / QUARTERS.step)]

    tries = searched(goal_mdb, level, level if has_sample else None)
    crfs = [(each.crf, each.is_whole) for each in tries]
    assert len(set(crfs)) == len(crfs)
    assert all(QUARTERS.best <= each.crf <= QUARTERS.worst and not each.crf % QUARTERS.step for each in tries)
    misses = [each.level_mdb - goal_mdb for each in tries if each.is_whole]
    kept = found(tries, goal_mdb).level_mdb - goal_mdb
    assert all(miss < min(kept, 0) or kept > 0 > miss for miss in misses if abs(miss) < abs(kept))
    assert abs(kept) <= 2 * min(map(abs, misses))


def test_a_curve_that_saturates_is_met() -> None:
    """VMAF hardly changes at low CRFs, and falls ever faster: in a film of calm pictures."""
    scores = {10: 97.31, 22: 96.46, 25: 96.12, 28: 95.09, 31: 93.86, 34: 91.77, 37: 89.03, 41: 81.93, 45: 73.0}

    def score(crf: Fraction) -> Fraction:
        return Fraction(round(np.interp(float(crf), list(scores), list(scores.values())) * UNITS))

    for asked in range(80, 97):
        target = QualityTarget.parse(f"vmaf:{asked}")
        goal, tries = goal_of(target), list[Try]()
        scale = replace(QUARTERS, start=23 - Fraction(above_usual_mdb(target), QUARTERS.mdb_per_crf))
        while (step := next_try(tries, goal, scale, has_sample=False)) is not None:
            tries.append(Try(step.crf, level_mdb(target, [int(score(step.crf))]), is_whole=True))
        assert float(score(tries[chosen(tries, goal)].crf)) / UNITS == pytest.approx(asked, abs=0.5)


def test_better_is_kept_where_quality_jumps() -> None:
    """Still pictures may be almost equal at one CRF and far from it at the next; a visible loss was not asked for."""
    kept = found(searched(40_000, lambda crf: 56_800 if crf < 41 else 26_900), 40_000)
    assert kept.level_mdb == 56_800


def test_of_equal_encodings_the_smallest_is_kept() -> None:
    """Pictures without movement have the same VMAF at every CRF, so the highest one wastes no bits."""
    tries = searched(40_000, lambda _: 45_900)
    assert found(tries, 40_000).crf == QUARTERS.worst
    assert len(tries) < MOST_TRIES


def test_a_met_target_is_not_searched_further() -> None:
    """The usual CRF that reaches the target on the sample is the only one that encodes the segment."""
    tries = searched(40_000, curve(39_950, 500, 0), curve(39_900, 500, 0))
    assert [(each.crf, each.is_whole) for each in tries] == [(23, False), (Fraction(91, 4), True)]


def test_the_scale_has_its_limits_on_its_grid() -> None:
    """A limit that is not a multiple of the step could not be tried."""
    with pytest.raises(ValueError, match="not a multiple of the step"):
        CrfScale(start=Fraction(23), best=Fraction(1, 3), worst=Fraction(45), step=Fraction(1, 4), mdb_per_crf=550)


@given(frames=st.integers(0, 5000), frame_bytes=st.integers(1, 200_000_000))
def test_a_sample_is_spread_and_bounded(frames: int, frame_bytes: int) -> None:
    """Its runs lie apart, inside the segment, and fit in the memory that placement counts."""
    runs = sample_of(frames, frame_bytes)
    taken = [number for run in runs for number in run]
    assert taken == sorted(set(taken))
    assert all(0 <= number < frames for number in taken)
    assert len(taken) * 2 <= frames
    assert len(taken) * frame_bytes <= sample_bytes(frame_bytes)
    assert {len(run) for run in runs} <= {len(runs[0])} if runs else frames < 2 * 72
