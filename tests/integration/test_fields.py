"""A field order that only the container states is used for encoding and deinterlacing."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.filter import Graph
from av.video.frame import VideoFrame

from codecfleet.actors.media.av_stream import FieldOrder
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.source import read_source

from .local_jobs import published

pytestmark = pytest.mark.timeout(120)

_OPTIONS = {
    FieldOrder.PROGRESSIVE: "progressive",
    FieldOrder.TOP_FIRST: "tt",
    FieldOrder.INTERLEAVED_TOP_FIRST: "tb",
    FieldOrder.INTERLEAVED_BOTTOM_FIRST: "bt",
}
WIDTH, HEIGHT, FRAMES, MOVE = 64, 64, 8, 4


def field_times(order: FieldOrder) -> tuple[int, int]:
    """Return when the top and the bottom field of the first picture are shown, counted in fields."""
    return (0, 1) if order.shown_first == "top" else (1, 0)


def pictures(order: FieldOrder) -> Iterator[VideoFrame]:
    """Yield pictures whose two fields show a bar that moves to the right."""
    for number in range(FRAMES):
        luma = np.full((HEIGHT * 2, WIDTH), 128, np.uint8)
        luma[:HEIGHT] = 40
        for field, time in enumerate(field_times(order)):
            left = MOVE * (2 * number + time) % (WIDTH - 8)
            luma[field:HEIGHT:2, left : left + 8] = 200
        frame = VideoFrame.from_ndarray(luma[: HEIGHT * 3 // 2], format="yuv420p")
        frame.pts, frame.time_base = number, Fraction(1, 25)
        yield frame


def film(path: Path, order: FieldOrder, encoder: str = "prores_ks", pix_fmt: str = "yuv422p10le") -> Path:
    """Write a film whose container states a field order that its pictures do not state."""
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream(encoder, rate=25, options={"field_order": _OPTIONS[order]})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        for frame in pictures(order):
            output.mux(stream.encode(frame.reformat(format=pix_fmt)))
        output.mux(stream.encode(None))
    return path


def coded_first(path: Path) -> str:
    """Return which field is shown first according to the pictures, or "" if they say nothing."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frame = next(container.decode(stream))
        if not frame.interlaced_frame:
            return ""
        graph = Graph()
        source = graph.add_buffer(template=stream)
        graph.link_nodes(source, graph.add("separatefields"), graph.add("format", "gray"), graph.add("buffersink"))
        graph.configure()
        graph.push(frame)
        graph.push(None)
        first: Any = graph.pull()
        lines: Any = frame.reformat(format="gray").to_ndarray()
        near = [np.abs(first.to_ndarray().astype(int) - lines[field::2]).mean() for field in (0, 1)]
        return "top" if near[0] < near[1] else "bottom"


ORDERS = [FieldOrder.INTERLEAVED_TOP_FIRST, FieldOrder.INTERLEAVED_BOTTOM_FIRST, FieldOrder.TOP_FIRST]


@pytest.mark.parametrize("name", ["a.mov", "a.mkv"])
@pytest.mark.parametrize("order", ORDERS)
def test_pictures_are_coded_in_the_order_that_the_container_states(
    tmp_path: Path, name: str, order: FieldOrder
) -> None:
    """ProRes without field flags becomes H.264 with flags, in the container's order."""
    source = film(tmp_path / name, order)
    assert coded_first(source) == ""
    _, verdict = published(source, tmp_path / "out.mp4")
    assert verdict.exact, verdict.lines()
    assert coded_first(tmp_path / "out.mp4") == order.shown_first


def test_deinterlacing_goes_by_the_container_too(tmp_path: Path) -> None:
    """With the right parity, the bar is where the first field shows it, so both orders give the same pictures."""
    shown = []
    for order in ORDERS[:2]:
        source = film(tmp_path / f"{order.name}.mov", order)
        output = tmp_path / f"{order.name}.mp4"
        published(source, output, deinterlace="auto", pix_fmt="yuv420p", quality=1)
        with av.open(str(output)) as container:
            frames = [frame.reformat(format="gray").to_ndarray() for frame in container.decode(video=0)]
        assert not coded_first(output)
        shown.append([int(frame[HEIGHT // 2].argmax()) for frame in frames[1:-1]])
    assert shown[0] == shown[1]


def test_pictures_that_say_it_themselves_are_left_as_they_are(tmp_path: Path) -> None:
    """Progressive pictures in a container that says nothing get no flags, and the same bytes as before."""
    source = film(tmp_path / "a.mov", FieldOrder.PROGRESSIVE)
    plan = plan_transcode(TranscodeSpec(source=str(source), output="b.mp4"))
    assert plan.filters.first_field is None
    assert "fields" not in plan.encoder_kind


def test_pictures_that_flag_the_bottom_field_are_coded_so(tmp_path: Path) -> None:
    """DV is bottom field first; H.264's picture structure and the order of its fields agree from the start."""
    source, output = tmp_path / "in.avi", tmp_path / "out.mp4"
    with av.open(str(source), "w") as file:
        stream: Any = file.add_stream("dvvideo", rate=25)
        stream.width, stream.height, stream.pix_fmt = 720, 576, "yuv420p"
        for frame in pictures(FieldOrder.BOTTOM_FIRST):
            file.mux(stream.encode(frame.reformat(720, 576)))
        file.mux(stream.encode(None))

    _, verdict = published(source, output)

    assert verdict.exact, verdict.lines()
    assert coded_first(output) == "bottom"
    found = read_source(str(output)).picture
    assert found is not None
    assert found[0].bottom_first


def test_each_field_is_scaled_by_itself(tmp_path: Path) -> None:
    """In a picture that stays interlaced, the lines of one field show the bar at one moment, at any size."""
    order = FieldOrder.INTERLEAVED_TOP_FIRST
    source, output = film(tmp_path / "in.mov", order), tmp_path / "out.mp4"

    published(source, output, scale="64x96", quality=5)

    with av.open(str(output)) as container:
        shown = [frame.to_ndarray(format="gray").astype(int) for frame in container.decode(video=0)]
    assert len(shown) == FRAMES
    for number, luma in enumerate(shown):
        for field, time in enumerate(field_times(order)):
            left = MOVE * (2 * number + time) % (WIDTH - 8)
            lines = luma[field + 8 : -8 : 2]
            assert lines[:, left + 1 : left + 7].min() > 160
            lines[:, max(0, left - 2) : left + 10] = 40
            assert lines.max() < 80
