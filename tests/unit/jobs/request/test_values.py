"""Values as users type them."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

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
    parse_title,
)

Parser = Callable[[str, str], object]
PARSERS: list[Parser] = [parse_rate, parse_time, parse_size, parse_count, parse_path]


def _pairs(name: str, text: str) -> object:
    return parse_pairs(name, text.split(" "))


def _counts(name: str, text: str) -> object:
    return parse_counts(name, text.split(" "))


def _choice(name: str, text: str) -> object:
    return parse_choice(name, text, ["copy", "aac", "none"])


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        *((parse_rate, "4M", 4_000_000), (parse_rate, "800k", 800_000), (parse_rate, "800K", 800_000)),
        *((parse_rate, "2.5M", 2_500_000), (parse_rate, "1500000", 1_500_000), (parse_rate, "1G", 10**9)),
        *((parse_time, "0", 0), (parse_time, "90", 90), (parse_time, "90.25s", Fraction(361, 4))),
        *((parse_time, "0.1", Fraction(1, 10)), (parse_time, "1:30", 90), (parse_time, "75:00", 4500)),
        *((parse_time, "00:01:30.5", Fraction(181, 2)), (parse_time, "1:00:00", 3600)),
        *((parse_size, "1280x720", (1280, 720)), (parse_size, "1280X720", (1280, 720))),
        *((parse_size, "720p", (None, 720)), (parse_size, "1x1", (1, 1))),
        *(
            (parse_title, "xpsnr", "xpsnr"),
            (parse_title, "vmaf:94", "vmaf:94"),
            (parse_title, "ssim:0.98", "ssim:0.98"),
        ),
        # Encoder options keep their order; a value may hold more equal signs.
        (_pairs, "b=2 x265-params=a=1:b=2", (("b", "2"), ("x265-params", "a=1:b=2"))),
        (_choice, "aac", "aac"),
    ],
)
def test_what_users_write_is_read_exactly(parse: Parser, text: str, value: object) -> None:
    """A suffix is a power of ten; seconds, clock times and sizes are read exactly."""
    assert parse("--option", text) == value


@pytest.mark.parametrize(
    ("parse", "texts", "how"),
    [
        (parse_rate, " |0|-1|-4M|+4M|nan|inf|1e6|4 M|4m|4Mbps|M|4|999|101G|0.0001k|٤M", ""),
        (parse_time, "-1|nan|inf|1e3|1:60|1:60:00|:30|1:|1:2:3:4|90sec|1:30s|36000001", ""),
        (parse_size, "0p|0x720|1280x|x720|-1x5|1280x-720|720|99999p|nanp|1e3p", ""),
        (parse_title, "vmag|vmaf:|vmaf:94:p5|psnr:40:crf18-35|vmaf:101|:40", ""),
        (_pairs, "tune|=film|tune=|-tune=film", "KEY=VALUE"),
        (_pairs, "tune=film tune=grain", "given twice"),
        (_counts, "1 01", "given twice"),
        (partial(parse_count, least=1, most=7), "-1|1.5|nan|0|8|99999999999999999999", "from 1 to 7"),
        (_choice, "mp3", "copy, aac or none"),
        (parse_path, "  |a\0b|--json|-", ""),
    ],
)
def test_anything_else_is_refused(parse: Parser, texts: str, how: str) -> None:
    """Anything else, even empty text, is refused in one line with the option and how to write a value."""
    for text in ("", *texts.split("|")):
        with pytest.raises(UsageError, match=how if text and how else None) as caught:
            parse("--option", text)
        assert "--option" in str(caught.value)
        assert "\n" not in str(caught.value)


@given(st.integers(1, 99_999), st.integers(0, 999))
def test_rates_never_pass_through_a_float(whole: int, thousandths: int) -> None:
    """Any number of megabits with three decimals is exact to the bit."""
    assert parse_rate("--bitrate", f"{whole}.{thousandths:03}M") == whole * 1_000_000 + thousandths * 1_000


@given(st.integers(0, 9_999), st.integers(0, 59), st.integers(0, 59), st.integers(0, 10**9 - 1))
def test_clock_times_add_up(hours: int, minutes: int, seconds: int, billionths: int) -> None:
    """Any clock time with nine decimals is the same number as its seconds written out."""
    whole = hours * 3600 + minutes * 60 + seconds
    clock = parse_time("--start", f"{hours}:{minutes:02}:{seconds:02}.{billionths:09}")
    assert clock == whole + Fraction(billionths, 10**9)
    assert clock == parse_time("--start", f"{whole}.{billionths:09}")


@given(st.sampled_from(PARSERS), st.text(max_size=200))
def test_no_text_gets_past_as_anything_but_a_value_or_a_usage_error(
    parser: Callable[[str, str], object], text: str
) -> None:
    """For any text, a parser returns a value or raises a UsageError with one short line that names the option."""
    try:
        parser("--option", text)
    except UsageError as error:
        assert error.message.startswith("--option ")  # noqa: PT017 - either outcome is fine
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        assert len(str(error)) < 500  # noqa: PT017
