"""How long what is left takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.report.time_left import time_left_s


@pytest.mark.parametrize(
    ("elapsed_s", "done", "left", "expected_s"),
    [
        (10, 0, 5, None),
        (10, 2, 4, 20),
        (10, 0, 0, 0),
        (5, 1, 1_220_000, None),
        (10, 1, 200, None),
        (61, 1, 200, 12_200),
        (61, 1, 2000, None),
    ],
)
def test_the_time_left_follows_the_pace(elapsed_s: float, done: int, left: int, expected_s: float | None) -> None:
    """Nothing left: none; too little done to say: unknown."""
    assert time_left_s(elapsed_s, done=done, left=left) == expected_s


@given(st.floats(0, 1e6), st.floats(0, 1e12), st.floats(0, 1e12))
def test_no_time_left_is_absurd(elapsed_s: float, done: float, left: float) -> None:
    """It is never more than a thousand times what was seen, in the first minute a hundred times."""
    found_s = time_left_s(elapsed_s, done=done, left=left)
    assert found_s is None or 0 <= found_s <= elapsed_s * (100 if elapsed_s < 60 else 1000)
