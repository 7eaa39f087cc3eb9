import io
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import floor

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.join.side_packets import (
    AudioPipe,
    CuePipe,
    Interval,
    VideoPipe,
    has_ac3_header,
    matroska_ticks,
    samples_of,
    skip_samples_data,
)
from codecfleet.jobs.source.tracks import AudioTrack, Track, TrackKind

MILLISECOND = Fraction(1, 1000)
OUTPUT = av.open(io.BytesIO(), "w", format="matroska")
SOUND, PICTURES, TEXT = (OUTPUT.add_mux_stream(codec) for codec in ("aac", "h264", "subrip"))


def sound(rate: int = 48_000, tick: Fraction = MILLISECOND, start_s: Fraction | None = None, priming: int = 0) -> Track:
    """An AAC track."""
    audio = AudioTrack(rate, 2, "stereo", 1024, priming)
    return Track(index=0, kind=TrackKind.AUDIO, codec="aac", time_base=tick, audio=audio, start_s=start_s)


def packet(
    pts: int | None, duration: int, tick: Fraction = MILLISECOND, *, dts: int | None = None, payload: bytes = b"x"
) -> av.Packet:
    """A keyframe packet of the source."""
    made = av.Packet(len(payload))
    made.update(payload)
    made.pts, made.dts, made.duration, made.time_base, made.is_keyframe = pts, dts, duration, tick, True
    return made


def feed(pipe: AudioPipe | VideoPipe | CuePipe, *packets: av.Packet) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Send packets through a pipe, and return (pts, dts, duration) of the results, in seconds."""
    out = [made for given_packet in packets for made in pipe.feed(given_packet)]
    out += list(pipe.finish())
    return [
        ((m.pts or 0) * m.time_base, (m.dts or 0) * m.time_base, (m.duration or 0) * Fraction(m.time_base)) for m in out
    ]


@given(
    rate=st.sampled_from([8000, 22_050, 44_100, 48_000, 96_000]),
    start_ms=st.integers(-500, 100_000),
    offset=st.fractions(0, 1, max_denominator=1000),
    count=st.integers(2, 80),
)
def test_rounded_times_return_to_the_sample_grid(rate: int, start_ms: int, offset: Fraction, count: int) -> None:
    """Packets whose times were rounded to milliseconds return to the sample grid, within 1 ms."""
    stated = [floor(start_ms + offset + Fraction(1000 * 1024 * n, rate) + Fraction(1, 2)) for n in range(count)]
    steps = [*(b - a for a, b in pairwise(stated)), 1024 * 1000 // rate]

    out = feed(AudioPipe(sound(rate), SOUND, Interval(Fraction(0))), *map(packet, stated, steps))

    times_s = [pts for pts, _, _ in out]
    assert all(b - a == Fraction(1024, rate) for a, b in pairwise(times_s))
    assert all(
        abs(t - s * MILLISECOND) <= MILLISECOND + Fraction(1, rate) for t, s in zip(times_s, stated, strict=True)
    )


def test_a_gap_is_no_rounding() -> None:
    """A gap of the source stays in the output."""
    out = feed(AudioPipe(sound(), SOUND, Interval(Fraction(0))), *(packet(t, 21) for t in (0, 21, 43, 564, 585)))

    assert out[3][0] == Fraction(564, 1000)


@given(origin=st.fractions(-10, 10, max_denominator=90_000), first=st.integers(-(10**6), 10**6))
def test_exact_times_move_by_one_constant(origin: Fraction, first: int) -> None:
    """If the source counts samples, all distances between packets stay exact."""
    tick = Fraction(1, 44_100)
    times = [first + 1024 * n for n in range(5)]
    out = feed(AudioPipe(sound(44_100, tick), SOUND, Interval(origin)), *(packet(t, 1024, tick, dts=t) for t in times))

    moved = {pts - t * tick for (pts, _, _), t in zip(out, times, strict=True)}
    assert len(moved) == 1
    assert abs(moved.pop() + origin) <= tick / 2


def test_a_missing_time_follows_the_packet_before() -> None:
    """A packet without a time follows the one before it."""
    out = feed(AudioPipe(sound(), SOUND, Interval(Fraction(0))), packet(100, 20), packet(None, 20), packet(None, 20))

    assert [round(pts * 1000) for pts, _, _ in out] == [100, 120, 140]


def test_decoding_times_before_the_first_known_one_are_filled() -> None:
    """Matroska's missing first decoding times are filled by counting backwards."""
    track = Track(index=0, kind=TrackKind.VIDEO, codec="h264", time_base=MILLISECOND)
    source = [packet(0, 40), packet(120, 40), packet(40, 40, dts=0), packet(80, 40, dts=40)]
    out = feed(VideoPipe(track, PICTURES, Interval(Fraction(0))), *source)

    assert [dts * 1000 for _, dts, _ in out] == [-80, -40, 0, 40]
    assert [pts * 1000 for pts, _, _ in out] == [0, 120, 40, 80]


def test_cues_are_clipped_to_the_part() -> None:
    """A cue that overlaps a border of the part is clipped there."""
    track = Track(index=0, kind=TrackKind.SUBTITLE, codec="subrip", time_base=MILLISECOND)
    part = Interval(Fraction(10), Fraction(10), Fraction(20))
    out = feed(
        CuePipe(track, TEXT, part), packet(1000, 2000), packet(9000, 2000), packet(19_000, 5000), packet(20_000, 1)
    )

    assert [(pts, duration) for pts, _, duration in out] == [(0, 1), (9, 1)]


@given(position=st.integers(-5000, 10**7), padding=st.integers(0, 3000), rate=st.sampled_from([44_100, 48_000]))
def test_matroska_rounds_once(position: int, padding: int, rate: int) -> None:
    """The time in the file, with the muxer's own rounding of the priming, is the nearest millisecond."""
    stored = matroska_ticks(position, padding, rate) + floor(Fraction(1000 * padding, rate) + Fraction(1, 2))

    assert abs(stored - Fraction(1000 * (position + padding), rate)) <= Fraction(1, 2)


def test_opus_packets_tell_their_length() -> None:
    """An Opus packet's configuration and frame count give its duration (RFC 6716, 3.1)."""
    track = Track(index=0, kind=TrackKind.AUDIO, codec="opus", time_base=MILLISECOND)
    lengths = {b"\x00": 480, b"\x18": 2880, b"\x60": 480, b"\x68": 960, b"\x80": 120, b"\xf8": 960, b"\xf9": 1920}

    assert {toc: samples_of(track, packet(0, 20, payload=toc)) for toc in lengths} == lengths
    assert samples_of(track, packet(0, 20, payload=b"\xfb\x03")) == 2880


def test_a_packet_without_a_duration_lasts_in_mp4() -> None:
    """A packet whose duration is unknown lasts as long as the one before it."""
    track = replace(sound(), audio=AudioTrack(48_000, 2, "stereo", 0, 0))
    pipe = AudioPipe(track, SOUND, Interval(Fraction(0)), trims_by_duration=True)
    out = feed(pipe, packet(0, 0), packet(21, 0), packet(42, 0))
    assert [duration for _, _, duration in out][1:] == [Fraction(21, 1000)] * 2


@pytest.mark.parametrize(("frame_samples", "stated_ms", "lasts_ms"), [(0, 21, 21), (1536, 21, 22), (1536, 32, 22)])
def test_samples_to_skip_at_the_end_are_left_out_once(frame_samples: int, stated_ms: int, lasts_ms: int) -> None:
    """A duration that only the container states excludes the samples that players skip."""
    track = replace(sound(), audio=AudioTrack(48_000, 6, "5.1(side)", frame_samples, 0))
    last = packet(0, stated_ms)
    last.set_sidedata(skip_samples_data(480))
    ((_, _, length),) = feed(AudioPipe(track, SOUND, Interval(Fraction(0)), trims_by_duration=True), last)
    assert length == Fraction(lasts_ms, 1000)


@pytest.mark.parametrize(
    ("header", "is_whole"),
    [
        ("0b77 0000 1440 43", True),  # AC-3, 192 kbit/s
        ("0b77 0000 2540 43", True),  # the last size code
        ("0b77 0000 2640 43", False),
        ("0b77 0000 d440 43", False),  # a reserved rate
        ("0b77 01ff 3f80 00", True),  # E-AC-3, 1024 bytes, six blocks
        ("0b77 01ff f480 00", False),  # a reserved half rate
        ("0b77 c1ff 3f80 00", False),  # a reserved type
        ("0b77 0002 3f80 00", False),  # shorter than its header
        ("0b77 0000 1488 43", False),  # of a later version
        ("1b77 0000 1440 43", False),
        ("0b77 0000 1440", False),
    ],
)
def test_headers_that_mp4_can_hold(header: str, *, is_whole: bool) -> None:
    """mp4 takes the AC-3 and E-AC-3 headers that FFmpeg's muxer reads without an error."""
    assert has_ac3_header(bytes.fromhex(header)) is is_whole
