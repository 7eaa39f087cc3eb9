"""CUDA's EGL formats and FFmpeg's names for them."""

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.nvidia.egl.layout import layout_of, stated_layout, surface_name
from codecfleet.actors.surfaces.formats import SurfaceLayout
from codecfleet.errors import Unsupported

NAMES = (
    *("nv12", "nv16", "nv24", "p010le", "p012le", "p210le", "yuv420p", "yuv422p", "yuv444p"),
    *("rgba", "bgra", "argb", "abgr", "rgb24", "bgr24", "gray"),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_presented_is_read_as_the_same(name: str) -> None:
    """The format number under which a picture is presented has the same meaning for the consumer."""
    layout = layout_of(64, 48, name)
    assert stated_layout(layout.code, 64, 48, None)[0] == layout


@pytest.mark.parametrize("name", NAMES)
def test_planes_are_ffmpeg_s(name: str) -> None:
    """The rows of each plane, and the bytes of a row, are those of FFmpeg's picture."""
    layout = layout_of(64, 48, name)
    planes = VideoFrame(64, 48, name).planes
    assert len(layout.plane_sizes) == len(planes)
    for (row_bytes, rows), plane in zip(layout.plane_sizes, planes, strict=True):
        assert rows == plane.height
        assert row_bytes <= plane.line_size < row_bytes + 64
    addresses = [plane.address for plane in layout.planes(4096)]
    assert addresses[0] == 4096
    last = layout.planes(4096)[-1]
    assert last.address + last.pitch_bytes * last.rows == 4096 + layout.size_bytes


@pytest.mark.parametrize(("sent", "arrives"), [(1, 21), (21, 1), (3, 20), (20, 3), (11, 19), (38, 44), (87, 88)])
def test_formats_that_the_driver_renames_are_read_alike(sent: int, arrives: int) -> None:
    """An H100's driver renames formats of two 8-bit planes between the ends; the bytes are the same."""
    assert stated_layout(sent, 64, 48, None) == stated_layout(arrives, 64, 48, None)


def test_colours_come_with_the_name() -> None:
    """A format with a range or matrix in its name has full range, BT.709 or BT.2020."""
    found = {code: stated_layout(code, 64, 48, None)[1] for code in (1, 38, 87, 92)}
    assert [(colour.range, colour.matrix) for colour in found.values()] == [(0, 2), (2, 2), (1, 1), (1, 9)]


def test_a_stated_name_is_overridden() -> None:
    """The caller's format overrides the name."""
    assert stated_layout(117, 64, 48, "rgba")[0].pix_fmt == "rgba"
    with pytest.raises(Unsupported, match="EGL format 117"):
        stated_layout(117, 64, 48, None)


@pytest.mark.parametrize(("size", "name"), [((65, 48), "nv12"), ((64, 47), "nv12"), ((0, 4), "rgba"), ((4, 4), "pal8")])
def test_what_no_frame_can_be_is_refused(size: tuple[int, int], name: str) -> None:
    """Odd sides with halved chroma, empty pictures and unknown formats are refused."""
    with pytest.raises(Unsupported):
        layout_of(*size, name)


def test_pictures_of_the_device_have_names() -> None:
    """NVDEC's layouts are formats of EGL, except 4:4:4 with more than 8 bits."""
    assert surface_name(SurfaceLayout.NV12, 8) == "nv12"
    assert surface_name(SurfaceLayout.P016, 12) == "p012le"
    with pytest.raises(Unsupported, match="YUV444_16Bit"):
        surface_name(SurfaceLayout.YUV444_16, 10)
