"""Tracks whose pictures change in mid-stream come out in one format, or the plan names the loss."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

import codecfleet
from codecfleet import TranscodeSpec
from codecfleet.errors import WouldLose
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.probe.job import probe
from codecfleet.testing.clips import Clip, constant_times
from tests.spliced import write_spliced

from .local_jobs import lossless

PICTURES = 10
SIZE = (64, 48)
X264 = "bframes=0:scenecut=0:qp=1"
FULL, LIMITED = "fullrange=on", "fullrange=off"
BT709, BT601 = "colormatrix=bt709", "colormatrix=smpte170m"
WEIGHTS = {1: (0.2126, 0.0722), 6: (0.299, 0.114)}
"""Weights of red and blue in luma, by H.273's number of the matrix."""


def film(folder: Path, parts: Sequence[str], *, pix_fmts: Sequence[str] = ("yuv420p",)) -> Path:
    """Write a track whose parts of ten pictures have these x264 parameters and formats in turn."""
    clips = [
        Clip(
            times=constant_times(PICTURES),
            options=(("x264-params", f"{X264}:{part}"),),
            width=SIZE[0],
            height=SIZE[1],
            pix_fmt=pix_fmts[number % len(pix_fmts)],
        )
        for number, part in enumerate(parts)
    ]
    return write_spliced(folder / "film.ts", clips, declared=SIZE)


def plan_for(source: Path, **options: object) -> Plan:
    """Plan a transcode of a source."""
    fields = {"source": str(source), "output": str(source.with_suffix(".mkv")), "codec": "h264", **options}
    return plan_transcode(TranscodeSpec.model_validate(fields))


def codes(plan: Plan) -> set[str]:
    """Return the codes of a plan's warnings."""
    return {warning.code for warning in plan.warnings}


def frames_of(path: Path) -> list[VideoFrame]:
    """Decode a file."""
    with av.open(str(path)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return [frame for frame in container.decode(video=0) if isinstance(frame, VideoFrame)]


def in_rgb(frame: VideoFrame, matrix: int, *, full: bool) -> NDArray[Any]:
    """Return a picture in RGB from 0 to 1, by the formulas of H.273, with chroma repeated for its samples."""
    bits = frame.format.components[0].bits
    kind, unit = ("u1", 1) if bits == 8 else ("<u2", 1 << bits - 8)
    planes = [np.frombuffer(plane, kind).reshape(plane.height, -1)[:, : plane.width] / unit for plane in frame.planes]
    luma = planes[0]
    blue, red = (
        np.kron(plane, np.ones((luma.shape[0] // plane.shape[0], luma.shape[1] // plane.shape[1]))) - 128
        for plane in planes[1:]
    )
    y, cb, cr = (luma / 255, blue / 255, red / 255) if full else ((luma - 16) / 219, blue / 224, red / 224)
    of_red, of_blue = WEIGHTS[matrix]
    r, b = y + 2 * (1 - of_red) * cr, y + 2 * (1 - of_blue) * cb
    return np.stack([r, (y - of_red * r - of_blue * b) / (1 - of_red - of_blue), b])


def psnr_db(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return how alike two pictures are where the first one has valid colours."""
    exists = np.all((first >= 0) & (first <= 1), axis=0)
    error = np.mean((first - second)[:, exists] ** 2)
    return float(-10 * np.log10(max(error, 1e-12)))


@pytest.mark.parametrize(
    ("parts", "matrices", "ranges"),
    [
        ((f"{BT709}:{LIMITED}", f"{BT709}:{FULL}"), (1, 1), (1, 2)),
        ((f"{BT709}:{FULL}", f"{BT601}:{LIMITED}"), (1, 6), (2, 1)),
        ((f"{BT601}:{LIMITED}", f"{BT709}:{LIMITED}", f"{BT601}:{LIMITED}"), (6, 1, 6), (1, 1, 1)),
    ],
)
def test_colours_stay_what_they_are(
    parts: tuple[str, ...], matrices: tuple[int, ...], ranges: tuple[int, ...], tmp_path: Path
) -> None:
    """Range and matrix become the first picture's, and each picture shows the RGB of its own numbers."""
    source, output = film(tmp_path, parts), tmp_path / "out.mkv"
    report = lossless(source, output)
    assert [warning.code for warning in report.warnings] == ["pictures-converted"]
    given, found = frames_of(source), frames_of(output)
    assert {(int(frame.colorspace), int(frame.color_range)) for frame in found} == {(matrices[0], ranges[0])}
    for number, (before, after) in enumerate(zip(given, found, strict=True)):
        part = number // PICTURES
        wanted = in_rgb(before, matrices[part], full=ranges[part] == 2)
        shown = in_rgb(after, matrices[0], full=ranges[0] == 2)
        assert psnr_db(wanted, shown) > 42


def test_pictures_do_not_depend_on_the_segments(tmp_path: Path) -> None:
    """Wherever decoding begins, a picture is converted by its own colours."""
    source = film(tmp_path, (f"{BT709}:{LIMITED}", f"{BT601}:{FULL}", BT709, f"{BT709}:{LIMITED}"))
    found = []
    for seconds in (Fraction(1, 5), Fraction(60)):
        output = tmp_path / f"{len(found)}.mkv"
        report = lossless(source, output, segment_s=seconds)
        found.append((len(report.segments), [frame.to_ndarray().tobytes() for frame in frames_of(output)]))
    assert found[0][0] > found[1][0]
    assert found[0][1] == found[1][1]


def test_the_deepest_samples_and_the_finest_chroma_win(tmp_path: Path) -> None:
    """8 bits of 4:2:2 and 10 bits of 4:2:0 become 10 bits of 4:2:2."""
    source = film(tmp_path, ("", ""), pix_fmts=("yuv422p", "yuv420p10le"))
    plan = plan_for(source, strict=True)
    assert plan.encoder.format.pix_fmt == "yuv422p10le"
    assert codes(plan) == {"pictures-converted"}


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (("colorprim=bt709", "colorprim=smpte170m"), "primaries-changes"),
        (("transfer=bt709", "transfer=smpte2084"), "transfer-changes"),
        (("colormatrix=bt709", "colormatrix=YCgCo"), "matrix-changes"),
        (("sar=1/1", "sar=4/3"), "aspect-changes"),
        (("sar=1/1", "tff=1"), "scan-changes"),
        (("bff=1", "tff=1"), "field-order-changes"),
        (("cll=1000,400", "cll=2000,400"), "hdr-changes"),
    ],
)
def test_what_cannot_be_converted_is_named(parts: tuple[str, ...], code: str, tmp_path: Path) -> None:
    """A change that cannot be converted is named, and ``strict`` refuses it before the work."""
    source = film(tmp_path, parts)
    assert code in codes(plan_for(source))
    with pytest.raises(WouldLose):
        plan_for(source, strict=True)


def test_the_widest_shape_is_that_of_all(tmp_path: Path) -> None:
    """A change of aspect ratio alone follows the rule for sizes."""
    plan = plan_for(film(tmp_path, ("sar=1/1", "sar=4/3")))
    assert plan.encoder.format.sample_aspect_ratio == Fraction(4, 3)


@pytest.mark.parametrize("parts", [("sar=1/1", "tff=1"), ("bff=1", "tff=1")])
def test_deinterlacing_makes_all_pictures_progressive(parts: tuple[str, ...], tmp_path: Path) -> None:
    """If a changing scan is deinterlaced, nothing is lost."""
    assert codes(plan_for(film(tmp_path, parts), deinterlace="auto", strict=True)) == set()


@pytest.mark.parametrize("part", ["level=4", "colormatrix=bt709:fullrange=off"])
def test_other_headers_alone_change_nothing(part: str, tmp_path: Path) -> None:
    """Headers may change without the pictures, and a matrix that only some pictures state applies to all."""
    plan = plan_for(film(tmp_path, ("fullrange=off", part)))
    assert codes(plan) == set()
    assert not plan.filters.by_picture


def test_hdr_alone_is_tone_mapped(tmp_path: Path) -> None:
    """If a track is HDR in part, ``tonemap`` changes only that part."""
    sdr, hdr = (
        "colormatrix=bt709:colorprim=bt709:transfer=bt709",
        "colormatrix=bt2020nc:colorprim=bt2020:transfer=smpte2084",
    )
    source, output = film(tmp_path, (sdr, hdr), pix_fmts=("yuv420p10le",)), tmp_path / "out.mkv"
    lossless(source, output, tonemap="bt2390", strict=True)
    pairs = [(psnr_db(in_rgb(a, 1, full=False), in_rgb(b, 1, full=False))) for a, b in _pairs(source, output)]
    assert min(pairs[:PICTURES]) > 60
    assert max(pairs[PICTURES:]) < 30


def _pairs(source: Path, output: Path) -> list[tuple[VideoFrame, VideoFrame]]:
    return list(zip(frames_of(source), frames_of(output), strict=True))


def test_each_frame_has_its_own_colours(tmp_path: Path) -> None:
    """Each frame of ``frames`` states its own colours, and is converted to RGB by them."""
    source = film(tmp_path, (f"{BT601}:{LIMITED}", f"{BT709}:{FULL}"))
    given = frames_of(source)
    plain = list(codecfleet.frames(source, decoder="software"))
    assert [frame.format.colour.matrix for frame in plain] == [6] * PICTURES + [1] * PICTURES
    assert [frame.format.colour.range for frame in plain] == [1] * PICTURES + [2] * PICTURES
    for number, frame in enumerate(codecfleet.frames(source, decoder="software", pix_fmt="rgb24")):
        part = number // PICTURES
        wanted = in_rgb(given[number], (6, 1)[part], full=part == 1)
        assert psnr_db(wanted, frame.to_ndarray().transpose(2, 0, 1) / 255) > 28


def test_probe_shows_each_change(tmp_path: Path) -> None:
    """``probe`` shows each change with property, values and time."""
    report = probe(film(tmp_path, (BT709, BT601)))
    assert [each.message for each in report.oddities if each.code == "picture-changes"] == [
        "the matrix changes: 1 to 6 at 0.471 s"
    ]


def test_the_order_of_fields_is_that_of_the_first_picture_on(tmp_path: Path) -> None:
    """Pictures with the lower field first state so from the first picture of each segment on."""
    source = film(tmp_path, ("bff=1",))
    assert dict(plan_for(source).encoder.options)["x264-params"].count("bff=1") == 1
