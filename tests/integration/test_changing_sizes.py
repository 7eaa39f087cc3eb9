"""Tracks whose pictures change their size: the output has the largest size, and the report counts scaled ones."""

import re
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.video.frame import VideoFrame

from codecfleet import Report
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times
from tests.spliced import write_spliced

from .local_jobs import lossless

REALTIME = (("deadline", "realtime"),)
X264 = (("x264-params", "bframes=0:scenecut=0"),)
X265 = (("x265-params", "bframes=0:scenecut=0:repeat-headers=1:log-level=none:pools=1:frame-threads=1"),)
TRACKS = {
    "vp8": ("film.webm", "libvpx", REALTIME),
    "vp9": ("film.webm", "libvpx-vp9", REALTIME),
    "h264": ("film.ts", "libx264", X264),
    "hevc": ("film.ts", "libx265", X265),
    "av1": ("film.ivf", "libsvtav1", (("preset", "12"), ("svtav1-params", "lp=1"))),
}
GROWING = ((128, 72), (256, 144), (128, 72))


def film(folder: Path, name: str, sizes: tuple[tuple[int, int], ...]) -> Path:
    """Write a track of a second in each size, in a container that declares 1920x1080."""
    file, encoder, options = TRACKS[name]
    clips = [
        Clip(times=constant_times(25), encoder=encoder, options=options, width=width, height=height)
        for width, height in sizes
    ]
    return write_spliced(folder / file, clips, declared=(1920, 1080))


def pictures(path: Path) -> list[bytes]:
    """Return the samples of every picture."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray().tobytes() for frame in container.decode(video=0) if isinstance(frame, VideoFrame)]


def resized(report: Report) -> list[str]:
    """Return what the report says about scaled pictures."""
    return [warning.message for warning in report.warnings if warning.code == "resized"]


@pytest.mark.parametrize("name", TRACKS)
def test_the_output_has_the_largest_size(name: str, tmp_path: Path) -> None:
    """Whatever the container and the first picture state, the output has the largest size, and verifies as exact."""
    source, output = film(tmp_path, name, GROWING), tmp_path / "out.mkv"
    report = lossless(source, output)
    assert (report.width, report.height) == (256, 144)
    assert resized(report) == ["pictures of other sizes were scaled to 256x144: 50 of 128x72"]
    verdict = verify(str(source), str(output))
    assert [check.name for check in verdict.checks if check.failed] == []


def test_pictures_do_not_depend_on_the_segments(tmp_path: Path) -> None:
    """Cut where sizes change or elsewhere, the output has the same pictures."""
    source = film(tmp_path, "h264", GROWING)
    found = []
    for number, seconds in enumerate((Fraction(1, 2), Fraction(1), Fraction(60))):
        output = tmp_path / f"{number}.mkv"
        report = lossless(source, output, segment_s=seconds)
        assert resized(report) == ["pictures of other sizes were scaled to 256x144: 50 of 128x72"]
        found.append((len(report.segments), pictures(output)))
    assert len({segments for segments, _ in found}) > 1
    assert found[0][1] == found[1][1] == found[2][1]


def test_a_deinterlacer_counts_no_picture_twice(tmp_path: Path) -> None:
    """A deinterlacer needs pictures of neighbouring segments, which are not scaled twice."""
    report = lossless(film(tmp_path, "h264", GROWING), tmp_path / "out.mkv", deinterlace="on", segment_s=Fraction(1, 2))
    assert len(report.segments) > 1
    assert resized(report) == ["pictures of other sizes were scaled to 256x144: 50 of 128x72"]


def test_another_size_is_given_where_it_is_asked_for(tmp_path: Path) -> None:
    """``scale`` decides the size; a height alone keeps the shape of the largest pictures."""
    source = film(tmp_path, "vp8", ((160, 160), (320, 180)))
    report = lossless(source, tmp_path / "out.mkv", scale=(None, 90))
    assert (report.width, report.height) == (160, 90)
    assert not resized(report)


def test_pictures_of_another_shape_are_stretched_and_named(tmp_path: Path) -> None:
    """The output has the shape of its largest pictures, and ``verify`` expects the others stretched."""
    source, output = film(tmp_path, "vp9", ((90, 160), (320, 180))), tmp_path / "out.mkv"
    report = lossless(source, output)
    assert (report.width, report.height) == (320, 180)
    assert re.fullmatch(r"pictures .* 320x180: 25 of 90x160", resized(report)[0])
    verdict = verify(str(source), str(output))
    assert next(check.passed for check in verdict.checks if check.name == "metadata.aspect")
