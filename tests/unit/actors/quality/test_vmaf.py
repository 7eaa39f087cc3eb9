"""VMAF is measured by another program: its scores, its end, and what happens without it."""

import os
import signal
from fractions import Fraction
from typing import NoReturn

import pytest

from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.quality.vmaf import VmafMeter, checked_tool, scores_of, tool_of, vmaf_tool
from codecfleet.errors import EncoderFailed, EngineUnfit

from .test_measuring import HEIGHT, WIDTH, grey, grey_of, picture

TOOL = vmaf_tool()
VERSION = "" if TOOL is None else TOOL.version
needs_vmaf = pytest.mark.skipif(TOOL is None, reason="needs the extra 'quality'")


def opened(pix_fmt: str = "yuv420p", threads: int = 1) -> VmafMeter:
    """Return a meter of small pictures."""
    return VmafMeter(VideoFormat(WIDTH, HEIGHT, pix_fmt, Fraction(25)), VERSION, threads)


def scores(noise: int, pix_fmt: str = "yuv420p", threads: int = 1, frames: int = 6) -> list[int]:
    """Return the scores of noisy pictures."""
    with opened(pix_fmt, threads) as meter:
        for number in range(frames):
            meter.take(picture(number, noise, pix_fmt), picture(number, 0, pix_fmt))
        while meter.drain():
            pass
        return meter.values


def take_for_ever(meter: VmafMeter) -> NoReturn:
    """Give the meter the same pair again and again."""
    while True:
        meter.take(picture(0, 4), picture(0, 0))


def test_the_log_is_read_in_units() -> None:
    """Its columns may be in any order; scores are from 0 to 100."""
    log = "Frame,integer_motion2,vmaf,\n0,0.0,65.554725,\n1,0.5,100.000001,\n2,0.5,-0.100000,\n"
    assert scores_of(log.encode()) == [6_555_472, 10_000_000, 0]


@pytest.mark.parametrize("log", [b"", b"Frame,psnr\n0,1\n", b"Frame,vmaf\n0\n", b"Frame,vmaf\n0,nan\n", b"\xff\xfe"])
def test_a_log_without_scores_is_an_encoders_failure(log: bytes) -> None:
    """An FFmpeg that ended well but could not write is tried again, and is no defect of codecfleet."""
    with pytest.raises(EncoderFailed, match="without its results"):
        scores_of(log)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("ffmpeg version n9.0 Copyright\nconfiguration: --enable-gpl --enable-libvmaf\n", "n9.0-x86_64"),
        ("ffmpeg version n9.0 Copyright\nconfiguration: --enable-gpl\n", None),
        ("", None),
    ],
)
def test_a_tool_has_libvmaf(said: str, version: str | None) -> None:
    """FFmpeg says with what it was built."""
    found = tool_of("ffmpeg", said, "x86_64")
    assert (None if found is None else found.version) == version


def test_another_version_measures_nothing() -> None:
    """Its scores could choose another CRF, so another worker gets the segment."""
    with pytest.raises(EngineUnfit):
        checked_tool("n0-another")


@needs_vmaf
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p12le", "gbrp", "gray"])
def test_more_noise_is_worse(pix_fmt: str) -> None:
    """In every depth and layout."""
    levels = [scores(noise, pix_fmt) for noise in (0, 20, 60)]
    assert all(len(values) == 6 for values in levels)
    assert sum(levels[0]) > sum(levels[1]) > sum(levels[2]) > 0


@needs_vmaf
def test_threads_and_depth_change_no_score() -> None:
    """Any number of threads measures the same; the same samples in more bits have nearly the same score."""
    assert scores(40, threads=1) == scores(40, threads=4)
    in_depths = []
    for bits in (8, 10, 12):
        with opened(grey_of(bits)) as meter:
            for noise in (20, 40):
                meter.take(*(grey(each, WIDTH, bits, bottom_up=False) for each in (noise, 0)))
            while meter.drain():
                pass
            in_depths.append(meter.values)
    assert in_depths[1] == pytest.approx(in_depths[0], rel=0.01)
    assert in_depths[2] == pytest.approx(in_depths[0], rel=0.01)


@needs_vmaf
def test_a_killed_ffmpeg_is_an_error_and_leaves_no_process() -> None:
    """The segment fails, and is tried again; a closed meter has no process either."""
    with opened() as meter, opened() as left:
        killed, closed = (each.process for each in (meter, left))
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(EncoderFailed, match="SIGKILL"):
            take_for_ever(meter)
    for process in (killed, closed):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
