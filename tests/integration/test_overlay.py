"""``--overlay`` in whole jobs: cuts do not change the pictures, and ``verify`` makes its own reference."""

import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.errors import InputNotFound, Unsupported, UsageError
from codecfleet.jobs.batch.listed.specs import EntrySpecs
from codecfleet.jobs.journal.header import asks_again, difference, header_of
from codecfleet.jobs.plan.overlay import placed
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.report.report import OverlayReport
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.jobs.verify.reference.overlay import OverlayReference
from codecfleet.testing.clips import Clip, make_clip
from tests.pngs import logo, write_png
from tests.sweeps import swept

from .local_jobs import lossless, planned, verified
from .test_filters import CLIP, PQ, TEN_BITS

STEPS: dict[str, dict[str, object]] = {
    "alone": {"overlay_at": (31, 17), "overlay_opacity": 60},
    "all": {"crop": (96, 64, 16, 8), "rotate": "90", "scale": (None, 80), "pad": (160, 128), "overlay_at": "top-left"},
    "deinterlaced": {"deinterlace": "on", "overlay_at": "center"},
    "fps": {"fps": Fraction(30)},
}


@pytest.mark.parametrize(
    ("clip", "options"),
    swept(
        [
            (CLIP, STEPS["alone"]),
            (CLIP, STEPS["all"]),
            (PQ, {"codec": "hevc", "quality": 1}),
            (PQ, {"tonemap": "bt2390", "pix_fmt": "yuv420p"}),
            (replace(PQ, options=(*PQ.options[:-2], ("color_trc", "arib-std-b67"))), {"codec": "hevc", "quality": 1}),
            (TEN_BITS, {"codec": "hevc", "quality": 1}),
        ]
    ),
)
def test_verify_lays_the_same_on_its_reference(tmp_path: Path, clip: Clip, options: dict[str, object]) -> None:
    """Independent code draws the same overlay; an overlay elsewhere, or none, fails."""
    overlay = write_png(tmp_path / "logo.png", np.kron(logo(8, 6), np.ones((8, 8, 1), np.uint8)))
    source, output = make_clip(tmp_path / "source.mkv", clip), tmp_path / "output.mp4"
    report = lossless(source, output, overlay=overlay, **options)
    verdict = verified(source, output, report)
    assert verdict.exact
    assert verdict.pictures is not None
    assert verdict.pictures.psnr_y_min_db > 32
    assert report.overlay is not None
    told = report.model_copy(update={"overlay": report.overlay.model_copy(update={"place": (0, 0)})})
    elsewhere = verified(source, output, told).pictures
    assert elsewhere is not None
    assert elsewhere.psnr_y_mean_db < verdict.pictures.psnr_y_mean_db - 6


def test_workers_need_not_see_the_file(tmp_path: Path) -> None:
    """The overlay is sent with each segment's work; ``verify`` needs the unchanged file."""
    source, overlay = make_clip(tmp_path / "source.mkv", CLIP), write_png(tmp_path / "logo.png")
    report = lossless(source, tmp_path / "output.mp4", overlay=overlay)
    work = planned(source, overlay=overlay).work("job", 0, 0, 0)
    write_png(overlay, logo(9, 9))
    with pytest.raises(UsageError, match="has changed"):
        verified(source, tmp_path / "output.mp4", report)
    overlay.unlink()
    assert work.run(WorkContext()).frames_out == len(CLIP.times)
    with pytest.raises(InputNotFound):
        verified(source, tmp_path / "output.mp4", report)


def test_no_more_travels_than_the_file(tmp_path: Path) -> None:
    """The overlay is sent compressed as PNG; its plain samples could take many times as much."""
    grey = np.random.default_rng(7).integers(0, 256, (80, 100, 1), np.uint8)
    source, overlay = make_clip(tmp_path / "source.mkv", CLIP), write_png(tmp_path / "grey.png", grey)
    sent = planned(source, overlay=overlay).filters.overlay
    assert sent is not None
    assert overlay.stat().st_size <= len(pickle.dumps(sent)) <= overlay.stat().st_size + 1024


def test_a_redacted_address_cannot_be_read() -> None:
    """The error says that the address lacks its secret part, and how to give it."""
    for picture in ("s3://key:***@bucket/logo.png", "https://example.org/logo.png?X-Amz-Signature=***"):
        told = OverlayReport(picture=picture, sha256="0" * 64, place=(0, 0), opacity_percent=100)
        with pytest.raises(UsageError, match="leaves out the secret part"):
            OverlayReference.of(told)


def test_another_picture_is_another_job(tmp_path: Path) -> None:
    """A killed job does not continue with another overlay, and a batch encodes its files again."""
    source, overlay = make_clip(tmp_path / "source.mkv", CLIP), write_png(tmp_path / "logo.png")
    spec = TranscodeSpec(source=source, output=tmp_path / "out.mp4", overlay=str(overlay))
    batch = BatchSpec(inputs=tmp_path, output=tmp_path / "out", overlay=str(overlay))
    before, digest = header_of(plan_transcode(spec)), EntrySpecs(batch).digest("{}")
    assert asks_again(before, spec)
    write_png(overlay, logo(9, 9))
    now = header_of(plan_transcode(spec))
    assert difference(before, now) == ("the overlay picture has changed", "put the picture back as it was")
    assert before.encoder["kind"] != now.encoder["kind"]
    assert not asks_again(before, spec)
    assert EntrySpecs(batch).digest("{}") != digest


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """An overlay outside the picture, on fields or in RGB is refused in one line."""
    source, overlay = make_clip(tmp_path / "source.mkv", CLIP), write_png(tmp_path / "logo.png")
    for options, words in (
        ({"overlay_at": (120, 0)}, "does not fit into 128x96"),
        ({"scale": (16, 16)}, "does not fit"),
        ({"codec": "hevc", "pix_fmt": "gbrp"}, "gbrp"),
    ):
        with pytest.raises(Unsupported, match=words):
            planned(source, overlay=overlay, **options)
    options = (*CLIP.options, ("x264-params", "interlaced=1"))
    fields = make_clip(tmp_path / "fields.mkv", replace(CLIP, options=options))
    with pytest.raises(Unsupported, match="interlaced"):
        planned(fields, overlay=overlay)


def test_corners_keep_a_margin() -> None:
    """The margin is a 40th of the picture's width, or less if it does not fit."""
    assert placed((100, 50), (800, 600), "top-left") == (20, 20)
    assert placed((100, 50), (800, 600), "bottom-right") == (680, 530)
    assert placed((100, 50), (800, 600), "top-right") == (680, 20)
    assert placed((100, 50), (800, 600), "bottom-left") == (20, 530)
    assert placed((100, 50), (800, 600), "center") == (350, 275)
    assert placed((795, 600), (800, 600), "bottom-right") == (0, 0)
    assert placed((100, 50), (800, 600), (3, 4)) == (3, 4)
