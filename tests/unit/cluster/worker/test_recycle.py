"""When a process that uses a GPU is replaced."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.worker.heartbeat import RECYCLE_S, SESSIONS_MAX, recycle


@given(age_s=st.floats(0, 10 * RECYCLE_S), sessions=st.integers(0, 10 * SESSIONS_MAX))
def test_age_and_use_each_suffice(age_s: float, sessions: int) -> None:
    """A reason is there exactly if one of the two bounds is reached, and names it."""
    reason = recycle(age_s, sessions)
    assert bool(reason) == (age_s >= RECYCLE_S or sessions >= SESSIONS_MAX)
    if reason:
        assert ("hours" in reason) == (age_s >= RECYCLE_S)
