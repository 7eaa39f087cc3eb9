"""An encoder's bytes do not depend on the number of its threads, if that number is chosen late."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from codecfleet.actors.encode.settings import (
    MOST_THREADS,
    THREADS_PER_CORE,
    Codec,
    EncoderSettings,
    RateControl,
    with_threads,
)
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.settle.software import THREADS, settle_software, software_request, x264_threads
from tests.sweeps import swept

QUALITY, RATE = RateControl(quality=30), RateControl(bitrate_bps=200_000)
CAPPED = RateControl(quality=20, maxrate_bps=300_000, bufsize_bits=300_000)
BUCKET = RateControl(bitrate_bps=200_000, maxrate_bps=400_000, bufsize_bits=400_000)
NUMBERS = range(1, max(MOST_THREADS.values()) + 2)
TICK = Fraction(1, 25)


@dataclass(frozen=True)
class Case:
    """The pictures and the encoder of a test."""

    codec: Codec
    preset: int = 1
    size: tuple[int, int] = (128, 96)
    depth: int = 8
    rate: RateControl = QUALITY
    count: int = 40
    interlaced: bool = False


QUICK = [
    Case(Codec.HEVC, 1, (256, 200), count=12),
    Case(Codec.HEVC, 4, (128, 720), count=12),
    Case(Codec.AV1, 1, (256, 200), count=12),
    Case(Codec.VP9, 2, (560, 72), count=6),
    Case(Codec.VP9, 2, (560, 72), rate=RATE, count=6),
]
RATES = {Codec.HEVC: (QUALITY,), Codec.AV1: (QUALITY,), Codec.VP9: (QUALITY, CAPPED, RATE, BUCKET)}
SWEEP = [
    Case(codec, preset, size, depth, rate)
    for codec, rates in RATES.items()
    for rate in rates
    for preset, size in ((1, (64, 64)), (1, (1300, 260)), (3, (322, 182)), (4, (640, 360)), (5, (320, 240)))
    for depth in ((8,) if codec is Codec.VP9 else (8, 10))
]


def settled(
    case: Case, interval_s: Fraction | None = None, segments: int | None = None, **options: str
) -> EncoderSettings:
    """Settle an encoder."""
    pix_fmt = "yuv420p" if case.depth == 8 else "yuv420p10le"
    picture = VideoFormat(*case.size, pix_fmt, Fraction(25), interlaced=case.interlaced)
    named = tuple((name.replace("_", "-"), value) for name, value in options.items())
    request = software_request(
        case.codec, rate=case.rate, preset=case.preset, options=named, keyframe_interval_s=interval_s
    )
    return settle_software(replace(request, segments=segments), picture, TICK)


def pictures(settings: EncoderSettings, count: int) -> list[av.VideoFrame]:
    """Return a moving, grainy texture with a cut in the middle: work for look-ahead and rate control."""
    width, height = settings.format.width, settings.format.height
    rng = np.random.default_rng(width * height)
    textures = rng.integers(16, 235, (2, height + 3 * count, width), np.uint8)
    textures[:, ::2] = textures[:, 1::2][:, : textures[:, ::2].shape[1]]
    frames = []
    grey = np.full((height // 2, width), 128, np.uint8)
    for number in range(count):
        luma = textures[number * 2 // count, 2 * number : 2 * number + height]
        picture = av.VideoFrame.from_ndarray(np.concatenate([luma, grey]), "yuv420p")
        frame = picture.reformat(format=settings.format.pix_fmt)
        frame.pts, frame.time_base = number, TICK
        frames.append(frame)
    return frames


def digest(settings: EncoderSettings, count: int, keyframes: Collection[int] = ()) -> str:
    """Return the hash of all packets of a session, and of its parameter sets."""
    encoder, found = SoftwareEncoder(settings), hashlib.sha256()
    frames = enumerate(pictures(settings, count))
    packets = [packet for n, frame in frames for packet in encoder.encode(frame, keyframe=n in keyframes)]
    for packet in [*packets, *encoder.finish()]:
        found.update(f"{packet.pts_ticks} {packet.is_keyframe} {len(packet.payload)}".encode() + packet.payload)
    found.update(encoder.extradata)
    encoder.close()
    return found.hexdigest()


@pytest.mark.parametrize("every", [None, 5], ids=["own keyframes", "keyframes asked for"])
@pytest.mark.parametrize("case", swept(QUICK + SWEEP, is_slow=lambda case: case not in QUICK))
def test_the_number_of_threads_changes_no_byte(case: Case, every: int | None) -> None:
    """Every number of threads that a session may get gives the bytes of the settled number."""
    settings = settled(case, interval_s=every and every * TICK)
    choices = {with_threads(settings, number) for number in NUMBERS}
    assert settings in choices
    per_core, most = THREADS_PER_CORE[case.codec], MOST_THREADS[case.codec]
    assert {each.threads for each in choices} == set(range(per_core, most + 1, per_core))
    keyframes = range(0, case.count, every) if every else ()
    assert len({digest(each, case.count, keyframes) for each in choices}) == 1


RACING = [
    Case(Codec.H264, 2, (640, 480), count=4, interlaced=True),
    Case(Codec.H264, 2, (426, 240), rate=CAPPED, count=12),
    Case(Codec.H264, 3, (322, 182), 10, count=12),
]
"""Cases in which two threads of x264 give different bytes: nearly always, often, and in one of some hundred runs."""


@pytest.mark.parametrize("rate", [CAPPED, BUCKET])
@pytest.mark.parametrize("segments", [None, 1])
def test_x264_has_one_thread_where_two_race(rate: RateControl, segments: int | None) -> None:
    """With a maximum rate, two threads race and change bytes at random, so x264 gets one thread."""
    assert settled(Case(Codec.H264, size=(64, 1088), rate=rate), segments=segments).threads == 1


@pytest.mark.parametrize(
    ("segments", "height", "threads"),
    [
        (1, 2160, 8), (2, 1080, 8), (3, 1080, 5), (5, 1080, 3), (6, 1080, 2), (8, 1080, 2), (9000, 2160, 2),
        (1, 1079, 7), (1, 720, 5), (1, 480, 3), (1, 360, 2), (1, 16, 2),
    ],
)  # fmt: skip
def test_few_segments_of_x264_have_more_threads(segments: int, height: int, threads: int) -> None:
    """The threads use about sixteen cores, leave each thread enough rows, and are at least two."""
    assert x264_threads(segments, height) == threads


def test_x264_has_the_threads_of_its_track_and_the_same_bytes_in_every_run() -> None:
    """The number of segments decides the number of threads, and with it the bytes; a bitrate means two threads."""
    case = Case(Codec.H264, 2, (64, 1088), count=30)
    many, few = settled(case, segments=8), settled(case, segments=2)
    assert (many.threads, few.threads) == (THREADS, 8)
    assert many.threads == settled(case).threads
    assert len({digest(few, case.count) for _ in range(4)}) == 1
    assert settled(replace(case, rate=RATE), segments=2).threads == THREADS


PROGRAM = """
from tests.unit.actors.encode import test_encoder_threads as here
for case in here.RACING:
    print(here.digest(here.settled(case), case.count))
"""


def test_bytes_do_not_depend_on_what_memory_held_before() -> None:
    """Packets are the same whether the memory of a new process holds zeros or other bytes."""
    found = set()
    for filling in ("255", "85"):  # glibc fills new memory with the inverse
        environment, root = os.environ | {"MALLOC_PERTURB_": filling}, Path(__file__).parents[4]
        command = [sys.executable, "-c", PROGRAM]
        found.add(subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, check=True).stdout)
    (printed,) = found
    assert len(printed.split()) == len(RACING)


@pytest.mark.parametrize("rate", [QUALITY, RATE, CAPPED])
def test_a_tiny_picture_has_the_same_bytes_in_every_run(rate: RateControl) -> None:
    """x265's bytes vary if a picture is a single coding tree unit, so small pictures get smaller units."""
    for size in ((64, 64), (32, 32)):
        settings = settled(Case(Codec.HEVC, 4, size, rate=rate))
        assert len({digest(settings, 40) for _ in range(3)}) == 1


def test_what_may_change_with_the_threads_keeps_its_own() -> None:
    """The number of threads stays as settled if bytes depend on it, or may depend on it because of a user's option."""
    for settings in (
        settled(Case(Codec.H264)),
        settled(Case(Codec.H264, rate=RATE)),
        settled(Case(Codec.HEVC, rate=RATE)),
        settled(Case(Codec.HEVC, rate=CAPPED)),
        settled(Case(Codec.AV1, rate=RATE)),
        settled(Case(Codec.AV1, rate=CAPPED)),
        settled(Case(Codec.VP9), tile_rows="2"),
        settled(Case(Codec.HEVC), x265_params="wpp=0"),
    ):
        assert {with_threads(settings, number) for number in NUMBERS} == {settings}


@pytest.mark.parametrize(
    ("codec", "cores", "params", "wanted"),
    [
        (Codec.HEVC, 0, "x265-params", ["pools=1"]),
        (Codec.HEVC, 2, "x265-params", ["pools=4", "lookahead-threads=1"]),
        (Codec.HEVC, 20, "x265-params", ["pools=8", "lookahead-threads=2"]),
        (Codec.AV1, 1, "svtav1-params", ["lp=1"]),
    ],
)
def test_the_library_is_told(codec: Codec, cores: int, params: str, wanted: list[str]) -> None:
    """Only the library's own options for threads change."""
    before, after = settled(Case(codec)), with_threads(settled(Case(codec)), cores)
    options, was = dict(after.options), dict(before.options)
    told, settled_ = options.pop(params).split(":"), was.pop(params).split(":")
    assert options == was
    assert [pair for pair in told if pair not in settled_] == wanted
