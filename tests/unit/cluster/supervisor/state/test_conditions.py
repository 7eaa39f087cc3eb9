"""What is counted on settles: it follows a load that stays, and nothing that only flickers."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.state.conditions import NOTICED, POLLS_TO_BELIEVE, Level, next_level

PARTS = st.integers(0, 20).map(lambda steps: steps / 20)
LEVELS = PARTS.filter(lambda part: part == 0 or part >= NOTICED)
SLACK = 1e-9


@given(before=LEVELS, part=PARTS, polls_to_rise=st.sampled_from([1, 2]))
def test_a_load_that_stays_is_followed(before: float, part: float, polls_to_rise: int) -> None:
    """After two polls that say the same, what is counted differs from it by no more than goes unnoticed."""
    level = Level(before)
    for _ in range(POLLS_TO_BELIEVE):
        level = next_level(level, part, polls_to_rise)
    assert abs(level.part - part) < NOTICED + SLACK
    assert next_level(level, part, polls_to_rise) == level


@given(before=LEVELS, dip=PARTS)
def test_one_poll_below_changes_nothing(before: float, dip: float) -> None:
    """A load that is away for one poll and back was never gone."""
    level = next_level(Level(before), before, 1)
    once = next_level(level, min(dip, level.part), 1)
    assert once.part == level.part
    assert next_level(once, level.part, 1) == level


@given(before=LEVELS, peak=PARTS)
def test_an_estimate_rises_in_the_second_poll(before: float, peak: float) -> None:
    """Where our own part is an estimate, one poll raises nothing; where nothing of ours runs, it does at once."""
    level = next_level(Level(before), before, 2)
    assert next_level(level, peak, 2).part == level.part
    if peak > level.part + NOTICED:
        assert next_level(level, peak, 1).part == peak
