"""``--target-quality`` in real jobs: what is reached, the same bytes from any workers, and what is refused."""

import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from statistics import fmean

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet import Report
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.quality.vmaf import vmaf_tool
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.actors.segment.together import EncodeTogether
from codecfleet.errors import JournalRefused, RequestError, Unsupported, UsageError
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.small_film import small_film
from tests.sweeps import swept

from .local_jobs import spec_of, transcode, verified
from .test_resume import interrupted

NEAR_DB = 0.3
"""Half of what a segment may be away, and half of a step of the coarsest scale."""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds of small pictures in almost lossless H.264, with an access point every second."""
    return small_film(tmp_path_factory.mktemp("film") / "film.mkv", frames=144)


def made(source: Path, output: Path, target: str, workers: int = 2, **options: object) -> Report:
    """Transcode in segments of about two seconds."""
    asked = {"segment_s": Fraction(2), "preset": 1, "workers": workers, "target_quality": target, **options}
    return transcode(spec_of(source, output, **asked), slots=workers)


def planes_of(path: Path) -> list[NDArray[np.int64]]:
    """Return the luma of all pictures."""
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray()[: frame.height] for frame in container.decode(video=0)]
    return [frame.astype(np.int64) for frame in frames]


def psnrs(source: Path, output: Path) -> list[float]:
    """Return the PSNR of each picture's luma, by its definition."""
    pairs = zip(planes_of(source), planes_of(output), strict=True)
    return [10 * math.log10(255**2 / float(np.mean((first - second) ** 2))) for first, second in pairs]


def average(psnrs_db: list[float]) -> float:
    """Return the PSNR of the mean square error, as FFmpeg does."""
    return -10 * math.log10(fmean(10 ** (-each / 10) for each in psnrs_db))


@pytest.mark.parametrize("codec", swept(["h264", "hevc", "av1", "vp9"], is_slow={"hevc", "vp9"}.__contains__))
def test_the_target_is_reached_and_reported(codec: str, film: Path, tmp_path: Path) -> None:
    """What the report says was reached is what the output's pictures have, in every segment and altogether."""
    output = tmp_path / "out.mkv"
    report = made(film, output, "psnr:36", codec=codec)
    found, at = psnrs(film, output), 0
    assert report.quality is not None
    assert report.quality.reached == pytest.approx(average(found), abs=0.001)
    assert report.quality.reached == pytest.approx(36, abs=NEAR_DB)
    assert report.quality.asked == "psnr:36"
    for segment in report.segments:
        assert segment.quality is not None
        own = found[at : at + segment.frames_out]
        assert segment.quality.reached == pytest.approx(average(own), abs=0.001)
        assert segment.quality.worst == pytest.approx(min(own), abs=0.001)
        assert segment.quality.reached == pytest.approx(36, abs=NEAR_DB)
        assert 1 <= segment.quality.encodes <= 4
        at += segment.frames_out
    assert len({segment.quality.crfs for segment in report.segments if segment.quality is not None}) > 1
    assert verified(film, output, report).exact


def test_vmaf_is_reached_with_the_same_bytes_from_any_workers(film: Path, tmp_path: Path) -> None:
    """Each segment is near the target, and the plan names the FFmpeg that measured it."""
    reports = [made(film, tmp_path / f"{n}.mp4", "vmaf:85", n, codec="hevc", end_s=4) for n in (1, 3)]
    assert len({report.proof.output_sha256 for report in reports}) == 1
    assert reports[0].quality == reports[1].quality
    for segment in reports[0].segments:
        assert segment.quality is not None
        assert segment.quality.reached == pytest.approx(85, abs=0.5)
    tool = vmaf_tool()
    assert tool is not None
    assert reports[0].encoder_kind.endswith(f"target=vmaf:85:crf4-51 {tool.version}")


@pytest.mark.parametrize(
    ("target", "near"), swept([("xpsnr:35:p5", NEAR_DB), ("xpsnr:38", NEAR_DB), ("ssim:0.95", 0.005)])
)
def test_a_long_segment_is_searched_on_a_sample(target: str, near: float, tmp_path: Path) -> None:
    """Two of its encodings are short, and the whole one, or a second one, is near the target by any metric."""
    report = made(small_film(tmp_path / "film.mkv"), tmp_path / "out.mp4", target, segment_s=Fraction(10))
    (segment,) = report.segments
    assert segment.frames_out > 200
    assert segment.quality is not None
    assert segment.quality.reached == pytest.approx(float(target.split(":")[1]), abs=near)
    assert 2 <= segment.quality.encodes <= 4


@pytest.mark.parametrize(
    "options", swept([{"fps": Fraction(15), "keyframe_interval_s": Fraction(1)}, {}, {"codec": "av1"}])
)
def test_any_workers_give_the_same_bytes(options: dict[str, object], film: Path, tmp_path: Path) -> None:
    """The search depends only on the segment's pictures."""
    reports = [made(film, tmp_path / f"{n}.mp4", "xpsnr:36", n, **options) for n in (1, 3)]
    assert len({report.proof.output_sha256 for report in reports}) == 1
    assert reports[0].quality == reports[1].quality


def test_a_resumed_job_gives_the_same(film: Path, tmp_path: Path) -> None:
    """Restored segments keep what they reached; a journal with another target is not continued."""
    options = {"segment_s": Fraction(1), "preset": 1, "target_quality": "xpsnr:37"}
    whole = transcode(spec_of(film, tmp_path / "whole.mp4", **options))
    interrupted(spec_of(film, tmp_path / "o.mp4", **options), after=3)
    with pytest.raises(JournalRefused, match="--target-quality was xpsnr:37 and is xpsnr:38"):
        transcode(spec_of(film, tmp_path / "o.mp4", **(options | {"target_quality": "xpsnr:38"})))
    again = transcode(spec_of(film, tmp_path / "o.mp4", **options))
    assert again.resumed is not None
    assert again.resumed.restored >= 3
    assert again.proof.output_sha256 == whole.proof.output_sha256
    assert again.quality == whole.quality
    assert [each.quality for each in again.segments] == [each.quality for each in whole.segments]


def test_an_easy_target_ends_at_the_highest_crf(film: Path, tmp_path: Path) -> None:
    """The limits hold, and the report says that more than the target was reached."""
    report = made(film, tmp_path / "out.mp4", "psnr:20:crf18-24")
    assert report.quality is not None
    assert report.quality.crfs == (24, 24)
    assert report.quality.reached is not None
    assert report.quality.reached > 25
    assert [each.code for each in report.warnings] == ["target-exceeded"]


def content(encoded: EncodedSegment) -> tuple[object, ...]:
    """Return a segment's bytes, and what its search found."""
    return encoded.payload.tobytes(), encoded.extradata, encoded.quality


class Watched(WorkContext):
    """Work whose progress never goes back, nor beyond the segment."""

    def advance(self, frames: int = 1) -> None:
        """Report frames."""
        assert frames >= 0
        super().advance(frames)
        assert self.frames_done <= 144


def test_renditions_with_and_without_a_target_share_passes(film: Path, tmp_path: Path) -> None:
    """Each has the bytes that it has alone, and progress counts each picture once."""
    renditions: list[dict[str, object]] = [
        {"target_quality": "xpsnr:36"},
        {"quality": 30},
        {"target_quality": "psnr:33", "scale": (96, 54), "codec": "vp9"},
    ]
    output = tmp_path / "out.mkv"
    plans = [plan_transcode(spec_of(film, output, segment_s=Fraction(10), preset=1, **each)) for each in renditions]
    works = tuple(plan.work(f"job {number}", 0, 0, 0) for number, plan in enumerate(plans))
    context = Watched()
    found = EncodeTogether(job="ladder", label="segment 0", segments=works).run(context)
    assert [content(each) for each in found] == [content(work.run(Watched())) for work in works]
    assert context.frames_done == found[0].frames_out
    assert [each.quality is None for each in found] == [False, True, False]


def test_full_range_and_ten_bits(tmp_path: Path) -> None:
    """Pictures are compared in the format that is encoded, whatever the decoder calls it."""
    clip = Clip(times=constant_times(30), width=96, height=64, pix_fmt="yuvj420p", options=(("qp", "0"),))
    source = make_clip(tmp_path / "clip.mkv", clip)
    for pix_fmt in ("yuv420p", "yuv420p10le"):
        report = made(source, tmp_path / "out.mkv", "psnr:40", pix_fmt=pix_fmt, codec="hevc", overwrite=True)
        assert report.quality is not None
        assert report.quality.reached == pytest.approx(40, abs=2 * NEAR_DB)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"target_quality": "xpsnr:40", "scale": (16, 16)}, Unsupported),
        ({"target_quality": "psnr:40:crf10-60"}, UsageError),
        ({"target_quality": "psnr:40", "encoder_options": (("x264-params", "stitchable=0"),)}, RequestError),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, object], error: type[Exception], film: Path) -> None:
    """Before any work, in one line."""
    with pytest.raises(error):
        plan_transcode(spec_of(film, "out.mp4", **options))


@pytest.mark.parametrize("other", [{"quality": 23}, {"bitrate_bps": 1_000_000}])
def test_a_target_replaces_quality_and_bitrate(other: dict[str, object], film: Path) -> None:
    """A request has one of them."""
    with pytest.raises(ValueError, match="exclude"):
        spec_of(film, "out.mp4", target_quality="xpsnr:40", **other)


def test_a_machine_without_libvmaf_refuses_vmaf(film: Path) -> None:
    """In one line, which says what to install; exit code 2."""
    environment = os.environ | {"IMAGEIO_FFMPEG_EXE": "/bin/true"}
    command = [sys.executable, "-m", "codecfleet", "plan", str(film), "out.mp4", "--target-quality", "vmaf:90"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == Unsupported("").exit_code
    assert len(ended.stderr.splitlines()) <= 2
    assert "codecfleet[quality]" in ended.stderr
