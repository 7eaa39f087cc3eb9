"""A target quality as text, and what the encoders make of it."""

from fractions import Fraction

import pytest

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.encode.target import QualityMetric, QualityTarget
from codecfleet.actors.media.values import VideoFormat
from codecfleet.errors import Unsupported, UsageError


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("xpsnr:42", QualityTarget(metric=QualityMetric.XPSNR, value=Fraction(42))),
        ("psnr:40.5", QualityTarget(metric=QualityMetric.PSNR, value=Fraction(81, 2))),
        ("ssim:0.98:p5", QualityTarget(metric=QualityMetric.SSIM, value=Fraction(98, 100), percentile=5)),
        ("vmaf:94", QualityTarget(metric=QualityMetric.VMAF, value=Fraction(94))),
        (
            "xpsnr:42:p10:crf16-40",
            QualityTarget(metric=QualityMetric.XPSNR, value=Fraction(42), percentile=10, crfs=(16, 40)),
        ),
    ],
)
def test_text_and_target(text: str, target: QualityTarget) -> None:
    """A target is read as it is written."""
    assert QualityTarget.parse(text) == target
    assert str(target) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "42", "xpsnr", "xpsnr:", "xpsnr:-1", "xpsnr:101", "ssim:1", "ssim:98", "psnr:42:p0", "psnr:42:p51"),
        *("psnr:42:crf40-16", "psnr:4e1", "PSNR:42", "vmaf:100", "psnr:42:crf16-40:p5"),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    """Each wrong value is one line that says how to write it."""
    with pytest.raises(UsageError):
        QualityTarget.parse(text)


@pytest.mark.parametrize("size", [(16, 16), (67, 41), (33, 400)])
def test_xpsnr_refuses_sizes_that_ffmpeg_measures_wrong(size: tuple[int, int]) -> None:
    """FFmpeg divides by zero if a picture is smaller than its blocks, and weighs narrow edges wrongly."""
    picture = VideoFormat(*size, "yuv420p", Fraction(25))
    with pytest.raises(Unsupported):
        QualityTarget.parse("xpsnr:42").settled(PROFILES[Codec.H264], picture, None)
    assert QualityTarget.parse("psnr:42").settled(PROFILES[Codec.H264], picture, None).crfs == (4, 51)


def test_limits_are_on_the_encoders_scale() -> None:
    """The limits that a user gives replace the usual ones; they may not be beyond the worst CRF."""
    picture, target = VideoFormat(640, 360, "yuv420p", Fraction(25)), QualityTarget.parse("xpsnr:42:crf0-60")
    assert target.settled(PROFILES[Codec.AV1], picture, None).crfs == (0, 60)
    with pytest.raises(UsageError):
        target.settled(PROFILES[Codec.H264], picture, None)


def test_vmaf_needs_a_tool_and_pictures_that_it_can_measure() -> None:
    """The tool's version is part of the target, so that no other one measures; libvmaf crashes on tiny pictures."""
    target, picture = QualityTarget.parse("vmaf:94:p5"), VideoFormat(320, 180, "yuv420p", Fraction(25))
    assert target.settled(PROFILES[Codec.H264], picture, "n9").tool == "n9"
    assert QualityTarget.parse("psnr:42").settled(PROFILES[Codec.H264], picture, "n9").tool == ""
    with pytest.raises(Unsupported, match="libvmaf"):
        target.settled(PROFILES[Codec.H264], picture, None)
    with pytest.raises(Unsupported, match="16x180"):
        target.settled(PROFILES[Codec.H264], VideoFormat(16, 180, "yuv420p", Fraction(25)), "n9")
