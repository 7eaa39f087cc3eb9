"""Encoders keep the time of every picture, in any tick."""

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec, RateControl
from codecfleet.actors.encode.software import SoftwareEncoder, encoder_time_base
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.settle.request import settle
from codecfleet.actors.settle.software import software_request
from codecfleet.testing.clips import picture

WIDTH, HEIGHT = 128, 96
NANOSECOND = Fraction(1, 1_000_000_000)

TIME_BASES = st.one_of(
    st.sampled_from(
        [
            NANOSECOND,
            Fraction(1, 1_200_000),
            Fraction(1, 14_112_000),
            Fraction(1001, 30_000),
            Fraction(1, 90_000),
            Fraction(1, 2**31 - 1),
            Fraction(1, 1),
        ]
    ),
    st.fractions(NANOSECOND, 1, max_denominator=2**31 - 1),
)
RATES = st.sampled_from([None, RateControl(bitrate_bps=200_000)])
STEPS_S = st.sampled_from([Fraction(0), Fraction(1, 1000), Fraction(1001, 30_000), Fraction(1, 25), Fraction(7, 3)])


def encoded(
    codec: Codec, time_base: Fraction, times: list[int], rate: RateControl | None = None
) -> list[EncodedPacket]:
    """Encode moving bars shown at ``times``, in ticks of ``time_base``."""
    shape = VideoFormat(WIDTH, HEIGHT, "yuv420p", Fraction(25))
    found: list[EncodedPacket] = []
    with SoftwareEncoder(settle(software_request(codec, rate=rate, preset=1), shape, time_base)) as session:
        for number, ticks in enumerate(times):
            frame = picture(number, WIDTH, HEIGHT)
            frame.pts, frame.time_base = ticks, time_base
            found += session.encode(frame)
        return found + session.finish()


@pytest.mark.parametrize("codec", Codec)
@given(time_base=TIME_BASES, steps_s=st.lists(STEPS_S, min_size=1, max_size=12), rate=RATES, late=st.booleans())
@settings(max_examples=20, deadline=None)
def test_any_time_base_is_kept(
    codec: Codec, time_base: Fraction, steps_s: list[Fraction], rate: RateControl | None, *, late: bool
) -> None:
    """Packets have the exact times of their pictures: in nanoseconds, 1001sts, beyond 33 bits, or any other tick."""
    start = 2**33 - 5 if late and time_base <= Fraction(1, 90_000) else 0
    times = list(accumulate((max(1, int(step_s / time_base)) for step_s in steps_s), initial=start))
    assert sorted(packet.pts_ticks for packet in encoded(codec, time_base, times, rate)) == times


@given(st.fractions(NANOSECOND, 1, max_denominator=2**31 - 1))
def test_encoders_get_the_tick_of_the_pictures_where_they_keep_it(time_base: Fraction) -> None:
    """Only libvpx gets another tick, and only if it would round the times."""
    for codec in Codec:
        told = encoder_time_base(codec, time_base)
        assert told == time_base or (codec is Codec.VP9 and told == Fraction(1, 10_000_000))
    assert encoder_time_base(Codec.VP9, Fraction(1, 90_000)) == Fraction(1, 90_000)


@pytest.mark.parametrize("bitrate_bps", [100_000, 1_000_000])
def test_rate_control_sees_the_same_times_in_any_tick(bitrate_bps: int) -> None:
    """VP9 of a variable frame rate has the same bytes in nanoseconds as in milliseconds."""
    times_ms = [0, 33, 66, 100, 400, 433, 1000, 1001, 1033, 2000]
    rate = RateControl(bitrate_bps=bitrate_bps)
    expected = [packet.payload for packet in encoded(Codec.VP9, Fraction(1, 1000), times_ms, rate)]
    times_ns = [time_ms * 1_000_000 for time_ms in times_ms]
    assert [packet.payload for packet in encoded(Codec.VP9, NANOSECOND, times_ns, rate)] == expected
