"""``--crop auto``: where the picture is between black borders."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import PictureType
from av.video.stream import VideoStream
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.segment.steps import Region
from codecfleet.jobs.plan.borders import FoundPicture, enclosing, find_picture, lit_region
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import picture

WIDTH, HEIGHT = 128, 96
BOX = Region(96, 60, 16, 14)
Shown = tuple[Region | None, int]
"""Where the picture is not black (None: nowhere), and for how many frames."""


def make(path: Path, shown: Sequence[Shown], *, gop: int = 10) -> str:
    """Encode pictures that are lit in these regions and black elsewhere."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "crf": "18"})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.gop_size, stream.codec_context.thread_count = 1000, 1
        number = 0
        for region, frames in shown:
            for _ in range(frames):
                planes = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
                planes[:HEIGHT] = 16
                if region is not None:
                    lit = picture(number, WIDTH, HEIGHT).to_ndarray()[:HEIGHT]
                    rows, columns = slice(region.y, region.y + region.height), slice(region.x, region.x + region.width)
                    planes[rows, columns] = np.maximum(lit[rows, columns], 60)
                frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
                frame.pts, frame.time_base = number, Fraction(1, 25)
                frame.pict_type = PictureType.NONE if number % gop else PictureType.I
                container.mux(stream.encode(frame))
                number += 1
        container.mux(stream.encode(None))
    return str(path)


def found_in(source: str, start_s: Fraction | None = None, end_s: Fraction | None = None) -> FoundPicture:
    """Return the result for a part of a source."""
    reading = read_source(source)
    ranges = TrackRanges.cut(reading.index, start_s=start_s, end_s=end_s, segment_s=None)
    return find_picture(ranges, reading.described()[0])


def test_the_border_that_all_pictures_share_is_found(tmp_path: Path) -> None:
    """The border common to all pictures is found; black pictures are ignored."""
    small = replace(BOX, width=40, height=30)
    source = make(tmp_path / "film.mkv", [(None, 20), (small, 20), (BOX, 20), (small, 20)])
    assert found_in(source) == FoundPicture(BOX, found_in(source).judged)


def test_a_part_of_a_track_is_judged_by_itself(tmp_path: Path) -> None:
    """Only pictures between --start and --end count."""
    whole = Region(WIDTH, HEIGHT, 0, 0)
    source = make(tmp_path / "film.mkv", [(whole, 30), (BOX, 40)])
    assert found_in(source).region is None
    assert found_in(source, Fraction(6, 5)).region == BOX


@pytest.mark.parametrize("gop", [5, 1000])
def test_one_keyframe_is_enough(tmp_path: Path, gop: int) -> None:
    """A track with one access point is judged by some of the pictures after it."""
    source = make(tmp_path / "film.mkv", [(None, 30), (BOX, 60)], gop=gop)
    found = found_in(source)
    assert found.region == BOX
    assert found.judged is not None
    assert 4 <= found.judged <= 32


def test_all_black_is_not_cropped(tmp_path: Path) -> None:
    """If all pictures are black, everything is kept, and the plan says so."""
    source = make(tmp_path / "black.mkv", [(None, 12)])
    assert found_in(source) == FoundPicture(None, 0)
    plan = plan_transcode(TranscodeSpec.model_validate({"source": source, "output": "out.mp4", "crop": "auto"}))
    assert plan.filters.steps is None
    assert any("all sampled pictures are black" in line for line in plan.lines())


def test_the_plan_states_what_was_found(tmp_path: Path) -> None:
    """The found border is in the plan's lines, in the encoder kind, and in every segment's settings."""
    source = make(tmp_path / "film.mkv", [(BOX, 30)])
    spec = TranscodeSpec.model_validate({"source": source, "output": "out.mp4", "crop": "auto"})
    plan = plan_transcode(spec)
    assert plan.filters.steps is not None
    assert plan.work("job", 0, 0, 0).filters.steps == plan.filters.steps
    assert plan.filters.steps.crop == BOX
    assert "steps: cropped to 96x60 at 16:14" in plan.lines()
    assert plan.encoder_kind.endswith(" crop=96:60:16:14")
    assert plan_transcode(spec).encoder_kind == plan.encoder_kind


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 24), st.integers(1, 24), st.booleans())
def test_a_region_is_found_to_the_line(x: int, y: int, width: int, height: int, full: bool) -> None:  # noqa: FBT001
    """Dim noise counts as black and lit lines do not, in either range of levels."""
    black = 0 if full else 16
    luma = np.full((64, 64), black + 3, np.uint8)
    luma[::3, ::2] = black + 8
    luma[y : y + height, x : x + width] = black + 90
    assert lit_region(luma, black) == Region(width, height, x, y)
    luma[...] = black + 8
    assert lit_region(luma, black) is None


def test_what_encloses_regions_holds_each_of_them() -> None:
    """The enclosing region reaches from the leftmost to the rightmost edge, and from top to bottom."""
    assert enclosing([Region(4, 4, 0, 9), Region(2, 8, 8, 3)]) == Region(10, 10, 0, 3)
