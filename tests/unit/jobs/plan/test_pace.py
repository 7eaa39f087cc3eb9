"""How long the last picture of the output is shown."""

from fractions import Fraction

import pytest

from codecfleet.jobs.plan.pace import OutputClock


@pytest.mark.parametrize(
    ("last", "end", "expected"),
    [(300, 690, 400), (600, 700, 100), (690, 700, 40), (100, 690, 590), (100, None, 400), (600, None, 100)],
)
def test_a_part_ends_where_it_does_whichever_picture_is_its_last(last: int, end: int | None, expected: int) -> None:
    """Pictures that do not decode, or whose times are known only after decoding, do not move the end of a part."""
    clock = OutputClock(Fraction(1, 1000), Fraction(0), Fraction(40), Fraction(400), 300, end)
    assert clock.shown_ticks(last) == expected
