"""The limits of a source: their environment variables and their errors."""

from fractions import Fraction

import pytest

from codecfleet.actors.limits import NO_LIMITS, InputLimits
from codecfleet.errors import InputTooLarge, Retry, UsageError


def test_the_environment_sets_them() -> None:
    """A variable replaces a default; an empty variable does not."""
    limits = InputLimits.of({"CODECFLEET_MAX_TRACKS": "7", "CODECFLEET_MAX_PIXELS": ""})
    assert (limits.max_tracks, limits.max_pixels) == (7, InputLimits().max_pixels)
    assert limits.options["max_streams"] == "8"


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e3", "\u0663"])
def test_a_wrong_variable_is_named(text: str) -> None:
    """A value other than a whole number above 0 is a ``UsageError`` that names the variable."""
    with pytest.raises(UsageError, match=r"CODECFLEET_MAX_TRACKS is not a whole number"):
        InputLimits.of({"CODECFLEET_MAX_TRACKS": text})


def test_a_broken_limit_is_the_input_s_own_fault() -> None:
    """The error states the value, the limit and how to raise the limit, and work is not retried."""
    with pytest.raises(InputTooLarge, match="states too much; max_frame_rate allows 10000") as caught:
        InputLimits().check("max_frame_rate", Fraction(10_001), "film.mkv states too much")
    assert (caught.value.exit_code, caught.value.retry) == (3, Retry.NEVER)
    assert "CODECFLEET_MAX_FRAME_RATE" in caught.value.next_step


def test_without_limits_everything_passes() -> None:
    """Without limits any source is read, because workers read only checked sources."""
    NO_LIMITS.check_size("film.mkv", 65_536, 65_536)
    assert int(NO_LIMITS.options["max_pixels"]) == 2**31 - 1
