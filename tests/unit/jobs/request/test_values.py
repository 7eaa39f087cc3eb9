"""Values as users type them."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import UsageError
from codecfleet.jobs.request.values import (
    parse_choice,
    parse_count,
    parse_counts,
    parse_pairs,
    parse_path,
    parse_rate,
    parse_size,
    parse_time,
)

PARSERS: list[Callable[[str, str], object]] = [parse_rate, parse_time, parse_size, parse_count, parse_path]


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("4M", 4_000_000),
        ("800k", 800_000),
        ("800K", 800_000),
        ("2.5M", 2_500_000),
        ("1500000", 1_500_000),
        ("1G", 10**9),
    ],
)
def test_rates_are_decimal(text: str, bits: int) -> None:
    """A rate's suffix is a power of ten, and a fraction of it is exact."""
    assert parse_rate("--bitrate", text) == bits


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0",
        "-1",
        "-4M",
        "+4M",
        "nan",
        "inf",
        "1e6",
        "4 M",
        "4m",
        "4Mbps",
        "M",
        "4",
        "999",
        "101G",
        "0.0001k",
        "٤M",
    ],
)
def test_absurd_rates_are_refused(text: str) -> None:
    """Anything but a plausible rate is refused by name in one line."""
    with pytest.raises(UsageError) as caught:
        parse_rate("--bitrate", text)
    assert "--bitrate" in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 99_999), st.integers(0, 999))
def test_rates_never_pass_through_a_float(whole: int, thousandths: int) -> None:
    """Any number of megabits with three decimals is exact to the bit."""
    assert parse_rate("--bitrate", f"{whole}.{thousandths:03}M") == whole * 1_000_000 + thousandths * 1_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", Fraction(0)),
        ("90", Fraction(90)),
        ("90.25s", Fraction(361, 4)),
        ("0.1", Fraction(1, 10)),
        ("1:30", Fraction(90)),
        ("75:00", Fraction(4500)),
        ("00:01:30.5", Fraction(181, 2)),
        ("1:00:00", Fraction(3600)),
    ],
)
def test_times_are_exact(text: str, seconds: Fraction) -> None:
    """Seconds and clock times mean exactly what they say."""
    assert parse_time("--start", text) == seconds


@pytest.mark.parametrize(
    "text", ["", "-1", "nan", "inf", "1e3", "1:60", "1:60:00", ":30", "1:", "1:2:3:4", "90sec", "1:30s", "36000001"]
)
def test_absurd_times_are_refused(text: str) -> None:
    """Anything but a time, a negative time, or one over 10,000 hours is refused."""
    with pytest.raises(UsageError, match="--start"):
        parse_time("--start", text)


@given(st.integers(0, 9_999), st.integers(0, 59), st.integers(0, 59), st.integers(0, 10**9 - 1))
def test_clock_times_add_up(hours: int, minutes: int, seconds: int, billionths: int) -> None:
    """Any clock time with nine decimals is the same number as its seconds written out."""
    whole = hours * 3600 + minutes * 60 + seconds
    clock = parse_time("--start", f"{hours}:{minutes:02}:{seconds:02}.{billionths:09}")
    assert clock == whole + Fraction(billionths, 10**9)
    assert clock == parse_time("--start", f"{whole}.{billionths:09}")


@pytest.mark.parametrize(
    ("text", "size"), [("1280x720", (1280, 720)), ("1280X720", (1280, 720)), ("720p", (None, 720)), ("1x1", (1, 1))]
)
def test_sizes(text: str, size: tuple[int | None, int]) -> None:
    """A size is both sides, or a height alone."""
    assert parse_size("--scale", text) == size


@pytest.mark.parametrize(
    "text", ["", "0p", "0x720", "1280x", "x720", "-1x5", "1280x-720", "720", "99999p", "nanp", "1e3p"]
)
def test_absurd_sizes_are_refused(text: str) -> None:
    """A side that is missing, zero or beyond any codec is refused."""
    with pytest.raises(UsageError, match="--scale"):
        parse_size("--scale", text)


def test_pairs_keep_their_order_and_later_equal_signs() -> None:
    """Options reach the encoder as written; a value may hold more equal signs."""
    assert parse_pairs("--encoder-option", ["b=2", "x265-params=a=1:b=2"]) == (("b", "2"), ("x265-params", "a=1:b=2"))


@pytest.mark.parametrize("text", ["", "tune", "=film", "tune=", "-tune=film", "a b=c"])
def test_anything_but_a_pair_is_refused(text: str) -> None:
    """A key, an equal sign and a value are all needed."""
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_pairs("--encoder-option", [text])


def test_repeats_are_refused() -> None:
    """Giving the same track or the same encoder option twice is a mistake, not a preference."""
    with pytest.raises(UsageError, match="given twice"):
        parse_pairs("--encoder-option", ["tune=film", "tune=grain"])
    with pytest.raises(UsageError, match="given twice"):
        parse_counts("--audio-track", ["1", "01"])


@pytest.mark.parametrize("text", ["", "-1", "1.5", "nan", "0", "8", "99999999999999999999"])
def test_counts_outside_their_range_are_refused(text: str) -> None:
    """A count is a whole number within the range its option names."""
    with pytest.raises(UsageError, match="from 1 to 7"):
        parse_count("--preset", text, least=1, most=7)


def test_choices_are_listed_when_none_fits() -> None:
    """A wrong word is answered with the right ones."""
    assert parse_choice("--audio", "aac", ["copy", "aac", "none"]) == "aac"
    with pytest.raises(UsageError, match="copy, aac or none"):
        parse_choice("--audio", "mp3", ["copy", "aac", "none"])


@pytest.mark.parametrize("text", ["", "  ", "a\0b", "--json", "-"])
def test_what_cannot_name_a_file_is_refused(text: str) -> None:
    """An empty name, a NUL, or an option where a file name was due is refused."""
    with pytest.raises(UsageError, match="--report"):
        parse_path("--report", text)


@given(st.sampled_from(PARSERS), st.text(max_size=200))
def test_no_text_gets_past_as_anything_but_a_value_or_a_usage_error(
    parser: Callable[[str, str], object], text: str
) -> None:
    """For any text a parser returns a value or one short line that names the option."""
    try:
        parser("--option", text)
    except UsageError as error:
        assert error.message.startswith("--option ")  # noqa: PT017 - either outcome is fine
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        assert len(str(error)) < 500  # noqa: PT017
