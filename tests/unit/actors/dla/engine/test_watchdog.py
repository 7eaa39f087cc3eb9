"""Deadlines of tasks. Time passes only when a test advances it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.dla.engine.watchdog import Deadlines, TimeLimits

LIMITS = TimeLimits(task_s=2, grace_s=1, call_s=10)


def test_tasks_run_one_after_the_other_so_their_times_add_up() -> None:
    """The limits of queued tasks add up, elapsed time is subtracted, and the grace is the minimum."""
    deadlines = Deadlines(LIMITS)
    assert deadlines.patience_s(100) == 1
    deadlines.submitted(100, 2)
    deadlines.submitted(101, 1)
    assert deadlines.patience_s(101) == 6
    assert deadlines.patience_s(200) == 1
    deadlines.ended()
    assert deadlines.patience_s(101) == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 8)), max_size=8), st.floats(0, 1000))
def test_patience_is_never_shorter_than_the_last_submission_needs(
    steps: list[tuple[float, int]], late_s: float
) -> None:
    """For any sequence of submissions each task has its full limit, and all together at most the sum of the limits."""
    deadlines, now_s, tasks = Deadlines(LIMITS), 0.0, 0
    for pause_s, count in steps:
        now_s += pause_s
        tasks += count
        deadlines.submitted(now_s, count)
        patience_s = deadlines.patience_s(now_s)
        assert count * 2 + 1 - 1e-6 <= patience_s <= tasks * 2 + 1 + 1e-6
    assert 1 <= deadlines.patience_s(now_s + late_s) <= tasks * 2 + 1 + 1e-6


def test_limits_make_sense() -> None:
    """A limit of zero is refused; cuDLA gets whole milliseconds, at least 1."""
    with pytest.raises(ValueError, match="above 0"):
        TimeLimits(task_s=0)
    assert TimeLimits(task_s=0.0001).task_ms == 1
    assert TimeLimits(task_s=1.5).task_ms == 1500
