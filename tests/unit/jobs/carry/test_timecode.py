from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.carry.timecode import Timecode

NTSC, FILM = Fraction(30_000, 1001), Fraction(24_000, 1001)


def parsed(text: str, rate: Fraction) -> Timecode:
    """Return a valid timecode."""
    found = Timecode.parse(text, rate)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "rate", "pictures", "later"),
    [
        ("10:00:00:00", Fraction(25), 50, "10:00:02:00"),
        ("10:00:00:00", FILM, 24, "10:00:01:00"),
        ("00:00:59:29", NTSC, 1, "00:01:00:00"),
        ("00:00:59;29", NTSC, 1, "00:01:00;02"),
        ("00:09:59;29", NTSC, 1, "00:10:00;00"),
        ("00:00:00;00", NTSC, 17_982, "00:10:00;00"),
        ("00:00:00;00", NTSC, 107_892, "01:00:00;00"),
        ("00:00:59;59", 2 * NTSC, 1, "00:01:00;04"),
        ("23:59:59;29", NTSC, 1, "00:00:00;00"),
        ("23:59:59:24", Fraction(25), 1, "00:00:00:00"),
        ("01:02:03.04", NTSC, 0, "01:02:03;04"),
        ("00:00:00:119", Fraction(120), 1, "00:00:01:00"),
    ],
)
def test_a_later_picture_has_a_later_name(text: str, rate: Fraction, pictures: int, later: str) -> None:
    """Drop-frame timecode skips two names a minute except every tenth, and four at 59.94 (SMPTE ST 12-1)."""
    assert str(parsed(text, rate).moved(pictures)) == later


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10:00:00;00", Fraction(25)),
        ("10:00:00;00", FILM),
        ("24:00:00:00", Fraction(25)),
        ("10:00:00:25", Fraction(25)),
        ("10:60:00:00", Fraction(25)),
        ("10:00:00", Fraction(25)),
        ("-1:00:00:00", Fraction(25)),
        ("10:00:00:00", Fraction(0)),
        ("", Fraction(25)),
    ],
)
def test_what_names_no_picture_is_no_timecode(text: str, rate: Fraction) -> None:
    """A name that the rate does not count is invalid; names are dropped only at 30 pictures a second, 60 and so on."""
    assert Timecode.parse(text, rate) is None


def test_the_same_picture_at_twice_the_rate() -> None:
    """A timecode at 29.97 can be counted at 59.94, where its numbers are doubled, but not at unrelated rates."""
    assert str(parsed("01:00:59;29", NTSC).counted_at(2 * NTSC)) == "01:00:59;58"
    assert parsed("01:00:59;29", NTSC).counted_at(Fraction(25)) is None


@given(
    per_second=st.sampled_from([24, 25, 30, 50, 60, 120]),
    drops=st.booleans(),
    first=st.integers(0, 24 * 3600 * 120),
    step=st.integers(0, 10**8),
)
def test_names_and_pictures_correspond(per_second: int, drops: bool, first: int, step: int) -> None:  # noqa: FBT001
    """Each picture of a day has one name, and single steps add up to one move."""
    timecode = Timecode(0, per_second, drops and per_second % 30 == 0).moved(first)

    assert Timecode.parse(str(timecode), Fraction(per_second)) == timecode
    assert timecode.moved(step).moved(1) == timecode.moved(step + 1)
    assert str(timecode.moved(1)) != str(timecode)


@given(minute=st.integers(0, 1439), multiple=st.sampled_from([1, 2, 4]))
def test_drop_frame_timecode_keeps_up_with_the_clock(minute: int, multiple: int) -> None:
    """At each tenth minute, the timecode shows the clock's time, within 2.6 frames a day."""
    rate = multiple * NTSC
    named = parsed(f"{minute // 60:02d}:{minute % 60 // 10 * 10:02d}:00;00", rate)
    clock_s = (minute // 60) * 3600 + (minute % 60 // 10) * 600

    assert abs(named.picture - clock_s * rate) <= Fraction(26, 10) * multiple
