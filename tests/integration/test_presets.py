"""The supplied presets, on the bundled film."""

from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import TranscodeSpec, load_preset, plan_transcode
from codecfleet.jobs.request.presets import find_presets
from tests.sweeps import swept

from .local_jobs import transcode, verified

OUTPUTS = {
    "archive-av1": "film.mkv",
    "archive-hevc": "film.mkv",
    "broadcast-ts": "film.ts",
    "hevc-hdr10": "film.mp4",
    "phone": "film.mp4",
    "proxy-720p": "film.mov",
    "web-av1": "film.webm",
    "web-h264": "film.mp4",
    "web-vp9": "film.webm",
}
"""The output's name for each preset."""
LIBRARIES = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9"}
START_S = Fraction(5, 8)


def spec_of(name: str, film: Path, folder: Path) -> TranscodeSpec:
    """Return a job with the preset of half a second that has a keyframe, or longer if keyframes are further apart."""
    spec = load_preset(name, source=film, output=folder / OUTPUTS[name], start_s=START_S, segment_s=Fraction(1, 8))
    length_s = max(Fraction(1, 2), (spec.keyframe_interval_s or 0) + Fraction(1, 8))
    # At slow speeds, a busy machine may take longer for full-size pictures than a segment's deadline allows.
    return spec.model_copy(update={"end_s": START_S + length_s, "scale": (None, 180)})


@pytest.mark.parametrize("name", find_presets(None))
def test_every_preset_plans(name: str, film: Path, tmp_path: Path) -> None:
    """The plan has the preset's encoder, and its container loses only tags."""
    spec = load_preset(name, source=str(film), output=str(tmp_path / OUTPUTS[name]))
    plan = plan_transcode(spec)
    assert spec.codec is not None
    assert plan.encoder_kind.startswith(LIBRARIES[spec.codec])
    assert {warning.code for warning in plan.warnings} <= {"tags-dropped", "audio-converted"}


@pytest.mark.parametrize("name", swept(OUTPUTS, is_slow=lambda name: name != "proxy-720p"))
def test_every_preset_makes_an_exact_file(name: str, film: Path, tmp_path: Path) -> None:
    """The output of each preset passes its own checks and ``verify``."""
    spec = spec_of(name, film, tmp_path)
    report = transcode(spec)
    assert report.proof.frames_in == report.proof.output_frames >= 12
    assert report.proof.seams == report.proof.seams_equal == 1
    verdict = verified(film, Path(report.output), report, start_s=spec.start_s, end_s=spec.end_s)
    assert verdict.exact, list(verdict.lines())
