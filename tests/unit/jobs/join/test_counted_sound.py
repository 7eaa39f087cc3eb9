from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.join.counted_sound import CountedSound

RATE = 1000
TICK_S = Fraction(1, 1000)


def line(codec: str = "pcm_s16le", channels: int = 1) -> CountedSound:
    """Return an empty line of a thousand samples a second, at which the tolerance is 2 samples."""
    return CountedSound(codec, channels, RATE, TICK_S)


@pytest.mark.parametrize(
    ("codec", "silence"),
    [
        ("pcm_s16le", b"\0\0"),
        ("pcm_s24be", b"\0\0\0"),
        ("pcm_f64le", bytes(8)),
        ("pcm_u8", b"\x80"),
        ("pcm_s8", b"\0"),
        ("pcm_mulaw", b"\xff"),
        ("pcm_alaw", b"\xd5"),
    ],
)
def test_a_gap_is_silence_in_the_samples_own_format(codec: str, silence: bytes) -> None:
    """A gap becomes silence, so that later sound is heard at its time."""
    placed = line(codec, channels=2)
    sample = b"\x55" * len(silence) * 2

    assert list(placed.place(0, sample * 10)) == [(0, 10, sample * 10)]
    assert list(placed.place(20, sample * 5)) == [(10, 10, silence * 20), (20, 5, sample * 5)]
    assert (placed.gaps, placed.silent_samples, placed.dropped_samples, placed.end) == (1, 10, 0, 25)


def test_what_overlaps_is_left_out() -> None:
    """Overlapping samples are left out, and do not move later sound."""
    placed = line()
    list(placed.place(0, bytes(20)))

    assert list(placed.place(5, bytes(range(20)))) == [(10, 5, bytes(range(10, 20)))]
    assert list(placed.place(7, bytes(8))) == []
    assert (placed.gaps, placed.dropped_samples, placed.end) == (0, 9, 15)


def test_rounded_times_leave_the_samples_alone() -> None:
    """A packet within 2 ms of the end of the previous one continues it, however many such packets there are."""
    placed = line()
    for number in range(100):
        stated = 10 * number + (0, 1, -1, 2, -2)[number % 5]
        assert list(placed.place(stated, bytes(20))) == [(10 * number, 10, bytes(20))]
    assert (placed.gaps, placed.dropped_samples) == (0, 0)


def test_a_long_gap_is_silence_in_short_packets() -> None:
    """No packet of silence is longer than a second."""
    placed = line()
    list(placed.place(0, bytes(2)))

    assert [samples for _, samples, _ in placed.place(2501, bytes(2))] == [1000, 1000, 500, 1]


@given(packets=st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 30)), min_size=1, max_size=30))
def test_the_line_has_no_hole_and_every_sample_is_within_the_tolerance_of_its_time(
    packets: list[tuple[int, int]],
) -> None:
    """Whatever the times, each packet begins where the previous one ends, within the tolerance of its time."""
    placed, at, end = line("pcm_u8"), 0, None
    for jump, samples in packets:
        at += jump
        for begin, count, payload in placed.place(at, bytes(samples)):
            assert end is None or begin == end
            assert len(payload) == count > 0
            end = begin + count
            if payload[0] == 0:
                assert begin + count <= at + samples + 2
                assert begin + count >= at + samples - 2
        at += samples
