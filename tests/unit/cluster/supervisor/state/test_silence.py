"""Which workers count as dead because they do not answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.state.silence import (
    INTERVAL_S,
    READS_MAX_PER_S,
    TOGETHER_FACTOR,
    interval_s,
    silent_workers,
)
from codecfleet.cluster.worker_names import WorkerId

LIMIT_S = 20.0


def workers(*nodes: str) -> list[WorkerId]:
    """Return a worker for each name of a node."""
    return [WorkerId(f"{node}/cpu#{number}:1") for number, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("late", "of", "limit_s"),
    [
        (workers("a"), 1, LIMIT_S),  # the only worker
        (workers("a", "a", "a"), 3, LIMIT_S),  # a frozen machine
        (workers("a", "a", "a"), 4, LIMIT_S),  # a frozen node with most workers
        (workers("a", "b"), 4, LIMIT_S),  # two frozen workers
        (workers("a", "b", "b"), 4, TOGETHER_FACTOR * LIMIT_S),
        (workers("a", "b"), 2, TOGETHER_FACTOR * LIMIT_S),
    ],
)
def test_workers_that_are_late_together_may_be_later(late: list[WorkerId], of: int, limit_s: float) -> None:
    """A supervisor that is itself slow must not end all workers of a cluster."""
    assert silent_workers(dict.fromkeys(late, limit_s), of, LIMIT_S) == late
    assert silent_workers(dict.fromkeys(late, limit_s - 0.1), of, LIMIT_S) == []


@given(st.dictionaries(st.sampled_from(workers(*"aabbccdd")), st.floats(0, 100)))
def test_a_prompt_worker_is_alive_and_no_worker_waits_for_ever(waited_s: dict[WorkerId, float]) -> None:
    """Whatever other workers do."""
    dead = silent_workers(waited_s, 8, LIMIT_S)
    assert all(waited_s[worker] >= LIMIT_S for worker in dead)
    assert {worker for worker, each_s in waited_s.items() if each_s >= TOGETHER_FACTOR * LIMIT_S} <= set(dead)


@given(st.integers(0, 10_000))
def test_heartbeats_of_many_workers_are_read_less_often(count: int) -> None:
    """The supervisor's work does not grow with the fleet beyond a limit."""
    assert round(count / interval_s(count)) <= READS_MAX_PER_S
    assert interval_s(count) == INTERVAL_S or count > INTERVAL_S * READS_MAX_PER_S
