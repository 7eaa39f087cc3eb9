"""How long the last picture of the output is shown."""

from fractions import Fraction

import pytest

from codecfleet.jobs.plan.pace import OutputClock


@pytest.mark.parametrize(
    ("last", "is_part", "expected"),
    [(300, True, 400), (600, True, 100), (690, True, 40), (100, True, 600), (100, False, 400), (600, False, 100)],
)
def test_a_part_ends_where_it_does_whichever_picture_is_its_last(last: int, *, is_part: bool, expected: int) -> None:
    """Pictures whose times are known only once they are decoded, or that do not decode, do not move the end."""
    clock = OutputClock(Fraction(1, 1000), Fraction(0), Fraction(40), Fraction(400), 300, is_part=is_part)
    assert clock.shown_ticks(last) == expected
