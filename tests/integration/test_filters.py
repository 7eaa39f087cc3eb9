"""Filters in whole jobs: the cuts do not change the pictures, and ``verify`` filters the source in the same way."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .local_jobs import lossless, shown, shown_for_any_cuts, verified
from .test_verify import Clip as SoundClip
from .test_verify import write

FRAMES = 36
CLIP = Clip(
    times=constant_times(FRAMES),
    keyframes=frozenset(range(0, FRAMES, 6)),
    options=(("bf", "2"), ("preset", "ultrafast"), ("crf", "8")),
    width=128,
    height=96,
)
TEN_BITS = replace(CLIP, pix_fmt="yuv422p10le")
PQ = replace(
    CLIP,
    pix_fmt="yuv420p10le",
    options=(*CLIP.options, ("color_primaries", "bt2020"), ("color_trc", "smpte2084"), ("colorspace", "bt2020nc")),
)
STEPS: dict[str, dict[str, object]] = {
    "all": {"crop": (96, 64, 16, 8), "rotate": "90", "flip": "v", "scale": (None, 48), "pad": Fraction(1)},
    "crop": {"crop": (96, 64, 16, 8)},
    "crop-auto": {"crop": "auto"},
    "rotate": {"rotate": "270"},
    "flip": {"flip": "h"},
    "pad": {"pad": (160, 128)},
    "denoise": {"denoise": "medium", "crop": (96, 64, 16, 8), "pad": (160, 128)},
    "deinterlaced": {"deinterlace": "on", "rotate": "180", "pad": (160, 128)},
}

TONED: dict[str, dict[str, object]] = {
    "bt2390": {"tonemap": "bt2390"},
    "hable-and-all": {"tonemap": "hable", **STEPS["all"]},
}


@pytest.mark.parametrize(
    ("clip", "name"),
    [
        *((CLIP, name) for name in STEPS),
        *((TEN_BITS, name) for name in ("all", "deinterlaced")),
        *swept(((TEN_BITS, name) for name in STEPS if name not in ("all", "deinterlaced")), is_slow=bool),
        (PQ, "bt2390"),
        *swept([(PQ, "hable-and-all")], is_slow=bool),
    ],
)
def test_pictures_do_not_depend_on_the_cuts(tmp_path: Path, clip: Clip, name: str) -> None:
    """One segment or three, one worker or three: the encoder gets the same pictures at the source's times."""
    source = make_clip(tmp_path / "source.mkv", clip)
    # x264 is lossless only in 8 bits.
    found = shown_for_any_cuts(source, tmp_path, pix_fmt=clip.pix_fmt[:7], **(STEPS | TONED)[name])
    assert [picture.ticks for picture in found] == [picture.ticks for picture in shown(source)]


@pytest.mark.parametrize("name", [name for name in STEPS if name != "deinterlaced"])
def test_verify_takes_the_same_steps(tmp_path: Path, name: str) -> None:
    """With the job's report, the reference is the source cropped, turned, scaled and padded, without tolerance."""
    source = make_clip(tmp_path / "source.mkv", CLIP)
    report = lossless(source, tmp_path / "output.mp4", **STEPS[name])
    verdict = verified(source, tmp_path / "output.mp4", report)
    assert verdict.exact
    assert verdict.pictures is not None
    # Two scalings with different rounding cause the largest difference.
    assert verdict.pictures.psnr_y_min_db > 36
    assert {check.name for check in verdict.checks if check.declared} <= {"metadata.aspect"}


def test_verify_notices_other_steps_than_the_report_names(tmp_path: Path) -> None:
    """Pictures that were cropped, turned or placed differently from the report fail."""
    source = make_clip(tmp_path / "source.mkv", CLIP)
    output = tmp_path / "output.mp4"
    report = lossless(source, output, crop=(96, 64, 16, 8), rotate="90", pad=(128, 128))
    assert report.steps is not None
    assert verified(source, output, report).exact
    others: list[tuple[dict[str, object], str]] = [
        ({"crop": (96, 64, 0, 8)}, "pictures.alike"),
        ({"turn": (0, 1, 1, 0)}, "pictures.alike"),
        ({"place": (32, 20)}, "pictures.alike"),
        ({"padded": (128, 160)}, "metadata.aspect"),
    ]
    for changes, check in others:
        told = report.model_copy(update={"steps": report.steps.model_copy(update=changes)})
        assert check in {failed.name for failed in verified(source, output, told).failures}, changes


@pytest.mark.parametrize("name", swept(TONED))
def test_verify_tone_maps_too(tmp_path: Path, name: str) -> None:
    """Colours and pictures match the formula; those of another transfer function do not."""
    source = make_clip(tmp_path / "source.mkv", PQ)
    output = tmp_path / "output.mp4"
    report = lossless(source, output, pix_fmt="yuv420p", **TONED[name])
    verdict = verified(source, output, report)
    assert verdict.exact
    assert verdict.pictures is not None
    assert verdict.pictures.psnr_y_min_db > 34
    assert report.tone is not None
    told = report.model_copy(update={"tone": report.tone.model_copy(update={"transfer": "hlg"})})
    assert "pictures.alike" in {failed.name for failed in verified(source, output, told).failures}


@pytest.mark.parametrize(("target", "limited"), [(Fraction(-30), False), (Fraction(-6), True)])
def test_sound_gets_the_loudness_asked_for(tmp_path: Path, target: Fraction, *, limited: bool) -> None:
    """The whole track gets one gain, limited by its peak, with any number of workers; ``verify`` measures it."""
    source = Path(write(tmp_path / "source.mkv", SoundClip()))
    alone, output = tmp_path / "alone.mp4", tmp_path / "output.mp4"
    one, report = (
        lossless(source, path, audio="opus", loudness_lufs=target, workers=workers)
        for path, workers in ((alone, 1), (output, 3))
    )
    assert one.proof.output_sha256 == report.proof.output_sha256
    (loudness,) = report.loudness
    assert loudness.source_lufs is not None
    assert loudness.lufs is not None
    assert (loudness.lufs < float(target) - 0.1) == limited
    assert ("loudness-limited" in {warning.code for warning in report.warnings}) == limited
    verdict = verified(source, output, report)
    assert verdict.exact
    assert [check.passed for check in verdict.checks if check.name == "audio.0.loudness"] == [True]
    told = report.model_copy(update={"loudness": (loudness.model_copy(update={"gain_db": loudness.gain_db + 2}),)})
    assert [failed.name for failed in verified(source, output, told).failures] == ["audio.0.loudness"]


def test_verify_denoises_its_reference(tmp_path: Path) -> None:
    """A denoised output is compared with a denoised reference; a nearly lossless output is nearly equal to it."""
    source = make_clip(tmp_path / "source.mkv", CLIP)
    output = tmp_path / "output.mp4"
    report = lossless(source, output, denoise="strong")
    with_it, without = (
        verified(source, output, report.model_copy(update={"denoise": denoise})).pictures
        for denoise in (report.denoise, "")
    )
    assert with_it is not None
    assert without is not None
    assert with_it.psnr_y_min_db > 60 > without.psnr_y_min_db
