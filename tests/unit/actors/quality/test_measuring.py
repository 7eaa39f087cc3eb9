"""Measurements are right, exact, and independent of the processor."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.target import QualityMetric, QualityTarget
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.quality.measuring import UNITS, PairMeter, goal_of, level_mdb, summary
from codecfleet.actors.quality.search import Goal
from codecfleet.testing.clips import turned_over

WIDTH, HEIGHT = 160, 96
IN_PROCESS = sorted(set(QualityMetric) - {QualityMetric.VMAF})
PIX_FMTS = sorted({pix_fmt for profile in PROFILES.values() for pix_fmt in profile.pix_fmts})


def luma(number: int, noise: int) -> NDArray[np.uint8]:
    """Return a moving picture's luma with noise."""
    across, down = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    smooth = 120 + 40 * np.sin(across / 9 + number) + 30 * np.cos(down / 7)
    rough = np.random.default_rng(number).integers(-noise, noise + 1, smooth.shape)
    return np.clip(smooth + rough, 16, 235).astype(np.uint8)


def picture(number: int, noise: int, pix_fmt: str = "yuv420p") -> VideoFrame:
    """Return a moving picture with noise."""
    return VideoFrame.from_ndarray(luma(number, noise), format="gray").reformat(format=pix_fmt)


def measured(meter: PairMeter, encoded: VideoFrame, original: VideoFrame) -> int:
    """Return the value of a pair."""
    meter.take(encoded, original)
    return meter.values[-1]


def values_of(metric: QualityMetric, noise: int, pix_fmt: str = "yuv420p", frames: int = 3) -> list[int]:
    """Return the values of noisy pictures."""
    meter = PairMeter(metric, VideoFormat(WIDTH, HEIGHT, pix_fmt, Fraction(25)))
    return [measured(meter, picture(n, noise, pix_fmt), picture(n, 0, pix_fmt)) for n in range(frames)]


@pytest.mark.parametrize("metric", IN_PROCESS)
@pytest.mark.parametrize("pix_fmt", PIX_FMTS)
def test_more_noise_is_worse_and_none_is_best(metric: QualityMetric, pix_fmt: str) -> None:
    """In every format that an encoder takes."""
    levels = [values_of(metric, noise, pix_fmt) for noise in (0, 2, 8)]
    assert set(levels[0]) == {metric.most * UNITS}
    assert min(levels[0]) > max(levels[1]) >= min(levels[1]) > max(levels[2])


def test_psnr_is_that_of_luma() -> None:
    """The definition, from the samples."""
    meter = PairMeter(QualityMetric.PSNR, VideoFormat(WIDTH, HEIGHT, "gray", Fraction(25)))
    original, encoded = luma(1, 0).astype(np.int64), luma(1, 5).astype(np.int64)
    found = measured(meter, picture(1, 5, "gray"), picture(1, 0, "gray"))
    assert found / UNITS == pytest.approx(10 * math.log10(255**2 / np.mean((original - encoded) ** 2)), abs=1e-4)


def test_xpsnr_weighs_by_the_original() -> None:
    """Noise in a smooth original is visible; the same error beside a noisy original is not."""
    meters = [PairMeter(QualityMetric.XPSNR, VideoFormat(WIDTH, HEIGHT, "yuv420p", Fraction(25))) for _ in range(2)]
    smooth = measured(meters[0], picture(1, 20), picture(1, 0))
    noisy = measured(meters[1], picture(1, 0), picture(1, 20))
    assert smooth < noisy


def test_full_range_is_compared_sample_by_sample() -> None:
    """Decoders call full range yuvj420p; its samples are not converted."""
    meter = PairMeter(QualityMetric.PSNR, VideoFormat(WIDTH, HEIGHT, "yuv420p", Fraction(25)))
    original = picture(1, 0, "yuvj420p")
    same = VideoFrame.from_ndarray(original.to_ndarray(), format="yuv420p")
    assert measured(meter, original, same) == QualityMetric.PSNR.most * UNITS


_WITHOUT_SIMD = """
from codecfleet.actors.media.av_abi import ffmpeg
ffmpeg().av_force_cpu_flags(0)
from tests.unit.actors.quality.test_measuring import measured_values
print(measured_values())
"""


def measured_values() -> list[list[list[int]]]:
    """Return what each metric measures in each depth of three pairs of films."""
    return [
        [values_of(metric, noise, pix_fmt, 4) for noise in (1, 3, 9)]
        for pix_fmt in ("yuv420p", "yuv420p10le")
        for metric in IN_PROCESS
    ]


def test_simd_changes_no_digit() -> None:
    """A processor without any SIMD measures the same."""
    run = [sys.executable, "-c", _WITHOUT_SIMD]
    without = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert without == f"{measured_values()}\n"


def test_percentiles_and_means() -> None:
    """A percentile is the least value that at most so many of the pictures are below."""
    values = list(range(100))
    assert summary(QualityMetric.VMAF, values, None) == Fraction(99, 2)
    for metric in QualityMetric:
        assert [summary(metric, values, percentile) for percentile in (1, 5, 50)] == [1, 5, 50]
        assert summary(metric, [7], 5) == 7


def test_errors_are_averaged_not_decibels() -> None:
    """Of pictures without any error and as many with 40 dB, half the error is left, or half of its square."""
    values = [40 * UNITS, 100 * UNITS] * 5
    assert float(summary(QualityMetric.PSNR, values, None)) / UNITS == pytest.approx(43.0103, abs=1e-3)
    assert float(summary(QualityMetric.XPSNR, values, None)) / UNITS == pytest.approx(46.0206, abs=0.01)
    assert summary(QualityMetric.PSNR, [4_012_345] * 3, None) == 4_012_345


def test_levels_of_ssim_and_vmaf_are_in_db() -> None:
    """An SSIM of 0.99 or a VMAF of 99 is 20 dB, in thousandths; that of equal pictures is finite."""
    for text, one in (("ssim:0.99", 1), ("vmaf:99", 100)):
        target = QualityTarget.parse(text)
        assert goal_of(target).level_mdb == 20_000
        assert level_mdb(target, [one * UNITS * 9 // 10]) == 10_000
        assert level_mdb(target, [one * UNITS]) == 50_000


def test_near_is_015_db_or_a_quarter_of_a_point_of_vmaf() -> None:
    """A point of VMAF is more of a level where few are missing."""
    assert goal_of(QualityTarget.parse("xpsnr:42.5")) == Goal(42_500, 150)
    for asked in ("vmaf:80", "vmaf:94.5"):
        target, goal = QualityTarget.parse(asked), goal_of(QualityTarget.parse(asked))
        below = level_mdb(target, [int((target.value - Fraction(1, 4)) * UNITS)])
        assert goal.level_mdb - below == goal.near_mdb


def grey(noise: int, width: int, bits: int, *, bottom_up: bool) -> VideoFrame:
    """Return a grey picture; ``bottom_up`` stores the same samples in reverse order of rows."""
    samples = luma(3, noise)[:, :width].astype(np.uint8 if bits == 8 else np.uint16) << (bits - 8)
    if not bottom_up:
        return VideoFrame.from_ndarray(samples, format=grey_of(bits))
    return turned_over(VideoFrame.from_ndarray(np.ascontiguousarray(samples[::-1]), format=grey_of(bits)))


def grey_of(bits: int) -> str:
    """Return FFmpeg's name of a grey format."""
    return "gray" if bits == 8 else f"gray{bits}le"


@pytest.mark.parametrize("metric", IN_PROCESS)
@pytest.mark.parametrize("width", [160, 158, 154])
def test_the_layout_of_rows_is_not_measured(metric: QualityMetric, width: int) -> None:
    """The same samples have the same value in more bits, with any padding, and upside down in memory."""
    found = []
    for bits in (8, 10, 12):
        for bottom_up in (False, True):
            meter = PairMeter(metric, VideoFormat(width, HEIGHT, grey_of(bits), Fraction(25)))
            found.append(measured(meter, *(grey(noise, width, bits, bottom_up=bottom_up) for noise in (4, 0))))
    assert found[::2] == found[1::2]
    assert max(found) - min(found) < UNITS // (2000 if metric is QualityMetric.SSIM else 20)
