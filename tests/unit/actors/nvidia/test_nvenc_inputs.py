"""Pictures as the package takes them: sizes checked, samples moved exactly, host told from device."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.device_frame import DeviceFrame, DevicePlane, SurfaceLayout
from codecfleet.actors.nvidia.nvenc_inputs import CudaPlanes, device_input, host_input, packed
from codecfleet.actors.nvidia.nvenc_surfaces import NvencSurface
from codecfleet.errors import EncoderFailed
from codecfleet.testing.clips import turned_over
from codecfleet.testing.fake_nvenc_tensor import FakeDeviceTensor

WIDTH, HEIGHT = 66, 34  # rows that FFmpeg pads
PIX_FMTS = {
    "yuv420p": NvencSurface.NV12,
    "yuv420p10le": NvencSurface.P010,
    "yuv422p": NvencSurface.NV16,
    "yuv422p10le": NvencSurface.P210,
    "yuv444p": NvencSurface.YUV444,
    "yuv444p10le": NvencSurface.YUV444_16BIT,
}


def frame_of(pix_fmt: str, seed: int) -> tuple[VideoFrame, list[np.ndarray[Any, Any]]]:
    """Return a frame of noise and its planes' samples."""
    generator = np.random.default_rng(seed)
    frame = VideoFrame(WIDTH, HEIGHT, pix_fmt)
    frame.time_base = Fraction(1, 25)
    wide = pix_fmt.endswith("10le")
    samples = []
    for plane in frame.planes:
        whole = generator.integers(0, 1024 if wide else 256, (plane.height, plane.line_size // (1 + wide)))
        whole = whole.astype("<u2" if wide else "u1")
        plane.update(whole.tobytes())
        samples.append(whole[:, : plane.width])
    return frame, samples


@pytest.mark.parametrize("pix_fmt", PIX_FMTS)
@given(seed=st.integers(0, 2**32))
def test_software_samples_arrive_exactly(pix_fmt: str, seed: int) -> None:
    """Every sample is where the surface has it: chroma in pairs, 10 bits in the upper bits, no padding."""
    frame, samples = frame_of(pix_fmt, seed)
    surface = PIX_FMTS[pix_fmt]
    data = packed(frame, surface, WIDTH, HEIGHT)
    shapes = surface.planes(WIDTH, HEIGHT)
    read = data.view("<u2") >> 6 if pix_fmt.endswith("10le") else data
    at = 0
    planes = []
    for shape in shapes:
        count = shape.rows * shape.columns * shape.components
        planes.append(read[at : at + count].reshape(shape.rows, shape.columns, shape.components))
        at += count
    assert np.array_equal(planes[0][:, :, 0], samples[0])
    pairs = planes[1].reshape(planes[1].shape[0], -1, 2)
    chroma = [pairs[:, :, 0], pairs[:, :, 1]] if len(planes) == 2 else [p[:, :, 0] for p in planes[1:]]
    assert all(np.array_equal(found, wanted) for found, wanted in zip(chroma, samples[1:], strict=True))


@pytest.mark.parametrize(
    ("pix_fmt", "surface"),
    [("nv12", NvencSurface.NV12), ("bgra", NvencSurface.ARGB), ("rgba", NvencSurface.ABGR)],
)
def test_formats_that_lie_as_the_surface_does_are_taken_as_they_are(pix_fmt: str, surface: NvencSurface) -> None:
    """Nothing is moved but the padding."""
    rows = HEIGHT * 3 // 2 if pix_fmt == "nv12" else HEIGHT
    shape = (rows, WIDTH) if pix_fmt == "nv12" else (rows, WIDTH, 4)
    samples = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    frame = VideoFrame.from_ndarray(samples, format=pix_fmt)
    assert packed(frame, surface, WIDTH, HEIGHT).tobytes() == samples.tobytes()


@pytest.mark.parametrize(("pix_fmt", "width"), [("yuv420p", WIDTH + 2), ("yuv422p", WIDTH)])
def test_another_frame_is_refused(pix_fmt: str, width: int) -> None:
    """A frame of another size or format is not converted but refused."""
    with pytest.raises(EncoderFailed, match=pix_fmt):
        packed(VideoFrame(width, HEIGHT, pix_fmt), NvencSurface.NV12, WIDTH, HEIGHT)


@given(st.integers(0, 64 * 32 * 3), st.sampled_from([NvencSurface.NV12, NvencSurface.P010, NvencSurface.YUV444]))
def test_a_buffer_has_exactly_the_bytes_of_a_picture(size: int, surface: NvencSurface) -> None:
    """The package reads past the end of a smaller one: only the right size passes."""
    wanted = surface.frame_bytes(64, 32)
    assert host_input(bytes(wanted), surface, 64, 32).nbytes == wanted
    if size != wanted:
        with pytest.raises(EncoderFailed, match=str(wanted)):
            host_input(bytes(size), surface, 64, 32)


def test_sixteen_bit_samples_pass_as_bytes() -> None:
    """The package would cast 16-bit samples to 8 bits each; their bytes are what it wants."""
    samples = np.arange(64 * 48, dtype=np.uint16).reshape(48, 64)
    given_bytes = host_input(samples, NvencSurface.P010, 64, 32)
    assert given_bytes.dtype == np.uint8
    assert given_bytes.tobytes() == samples.tobytes()
    with pytest.raises(EncoderFailed, match="float32"):
        host_input(samples.astype(np.float32), NvencSurface.P010, 64, 32)


def test_read_only_and_scattered_buffers_become_one_piece() -> None:
    """bytes, memoryviews and strided arrays all arrive, in order."""
    samples = np.arange(96 * 64 * 2, dtype=np.uint8).reshape(48, 256)[:, ::4]
    for pixels in (samples, samples.tobytes(), memoryview(samples.tobytes()), bytearray(samples.tobytes())):
        taken = host_input(pixels, NvencSurface.NV12, 64, 32)
        assert taken.tobytes() == samples.tobytes()


def test_what_is_no_picture_is_refused() -> None:
    """Neither text nor numbers pass."""
    for pixels in ("text", 3, None):
        with pytest.raises(EncoderFailed):
            host_input(pixels, NvencSurface.NV12, 64, 32)
        with pytest.raises(EncoderFailed):
            device_input(pixels, NvencSurface.NV12, 64, 32)


def device_frame(*, gap_bytes: int = 0, pitch_bytes: int = 64, bits: int = 8) -> DeviceFrame:
    """Return an NV12 frame at a made-up address."""
    luma = DevicePlane(4096, pitch_bytes, 64, 32)
    chroma = DevicePlane(4096 + 64 * 32 + gap_bytes, pitch_bytes, 64, 16)
    return DeviceFrame(layout=SurfaceLayout.NV12, bits=bits, width=64, height=32, planes=(luma, chroma), owner=object())


def described(planes: CudaPlanes) -> list[dict[str, Any]]:
    """Return what the planes say of themselves."""
    found = planes.cuda()
    return [plane.__cuda_array_interface__ for plane in (found if isinstance(found, list) else [found])]


def test_a_device_frame_becomes_planes() -> None:
    """The planes of the CUDA array interface are tight, in order, and where the frame has them."""
    luma, chroma = described(device_input(device_frame(), NvencSurface.NV12, 64, 32))
    assert (luma["shape"], luma["strides"], luma["data"][0]) == ((32, 64, 1), (64, 1, 1), 4096)
    assert (chroma["shape"], chroma["strides"], chroma["data"][0]) == ((16, 32, 2), (64, 2, 1), 4096 + 64 * 32)
    assert luma["typestr"] == "|u1"


def test_a_device_frame_with_gaps_or_another_format_is_refused() -> None:
    """The package takes planes that are tight and one behind the other alone."""
    for frame in (device_frame(gap_bytes=64), device_frame(pitch_bytes=128)):
        with pytest.raises(EncoderFailed, match="gaps"):
            device_input(frame, NvencSurface.NV12, 64, 32)
    for surface, width in ((NvencSurface.P010, 64), (NvencSurface.NV12, 32)):
        with pytest.raises(EncoderFailed, match="NV12"):
            device_input(device_frame(), surface, width, 32)
    with pytest.raises(EncoderFailed, match="12"):
        device_input(device_frame(bits=12), NvencSurface.NV12, 64, 32)


def tensor(shape: tuple[int, ...], **options: Any) -> FakeDeviceTensor:  # noqa: ANN401 - the fake's
    """Return a tensor at a made-up address."""
    return FakeDeviceTensor(4096, shape, **({"item_bytes": 1} | options))


@pytest.mark.parametrize("shape", [(48, 64), (1, 1, 48, 64)])
def test_rows_and_nchw_tensors_pass(shape: tuple[int, ...]) -> None:
    """A tensor of all planes' rows becomes planes, alone or as NCHW, and is made ready on a stream first."""
    rows = tensor(shape)
    luma, chroma = described(device_input(rows, NvencSurface.NV12, 64, 32))
    assert (luma["data"][0], chroma["data"][0]) == (4096, 4096 + 64 * 32)
    assert rows.streams == [1]
    (shifted, _) = described(device_input(tensor(shape, byte_offset=512), NvencSurface.NV12, 64, 32))
    assert shifted["data"][0] == 4096 + 512


@pytest.mark.parametrize(
    ("shape", "options", "named"),
    [
        ((32, 64), {}, "tensor"),
        ((2, 1, 48, 64), {}, "tensor"),
        ((48, 32), {}, "tensor"),
        ((48, 64), {"item_bytes": 2}, "2 bytes"),
        ((48, 64), {"strides": (128, 1)}, "gaps"),
        ((48, 64), {"device_type": 1}, "on the host"),
        ((48, 64), {"device_id": 1}, "on GPU 1 of this process"),
        ((48, 64), {"code": 2}, "whole numbers"),
    ],
)
def test_other_tensors_are_refused(shape: tuple[int, ...], options: dict[str, Any], named: str) -> None:
    """A batch, another size, padding, another place or floats: the package would read what is not there, or noise."""
    with pytest.raises(EncoderFailed, match=named):
        device_input(tensor(shape, **options), NvencSurface.NV12, 64, 32)


def test_a_host_session_takes_nothing_from_a_device() -> None:
    """A device address is never read as if it were the host's."""
    for pixels in (tensor((48, 64)), device_frame(), array((48, 64))):
        with pytest.raises(EncoderFailed, match="on a device"):
            host_input(pixels, NvencSurface.NV12, 64, 32)


def array(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, typestr: str = "|u1") -> object:
    """Return an object with a CUDA array interface."""
    interface = {"shape": shape, "strides": strides, "typestr": typestr, "data": (4096, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=interface)


def test_one_array_of_rows_becomes_planes() -> None:
    """An array of all planes' rows passes if it is tight."""
    planes = described(device_input(array((48, 64), (64, 1)), NvencSurface.NV12, 64, 32))
    assert planes[1]["data"][0] == 4096 + 64 * 32
    with pytest.raises(EncoderFailed, match="gaps"):
        device_input(array((48, 64), (128, 1)), NvencSurface.NV12, 64, 32)
    with pytest.raises(EncoderFailed, match="whole numbers"):
        device_input(array((48, 64), typestr="<f2"), NvencSurface.P010, 64, 32)


STRIDES = {
    NvencSurface.NV12: [(64, 1, 1), (64, 2, 1)],
    NvencSurface.YUV420: [(64, 1, 1), (32, 1, 1), (32, 1, 1)],
    NvencSurface.P010: [(128, 2, 1), (128, 2, 1)],
    NvencSurface.NV16: [(64, 1, 1), (64, 1, 1)],
    NvencSurface.P210: [(128, 2, 1), (128, 2, 1)],
    NvencSurface.YUV444: [(64, 1, 1)] * 3,
    NvencSurface.YUV444_10BIT: [(128, 2, 1)] * 3,
    NvencSurface.YUV444_16BIT: [(128, 2, 1)] * 3,
    NvencSurface.ARGB: [(256, 4, 1)],
    NvencSurface.ABGR: [(256, 4, 1)],
}
"""What PyNvVideoCodec 2.2.4 insists on, as it said itself."""


@pytest.mark.parametrize("surface", NvencSurface)
def test_planes_have_the_strides_that_the_package_insists_on(surface: NvencSurface) -> None:
    """Planes come out in the package's own spelling, also when they were right by the interface's words."""
    ours = CudaPlanes(4096, surface, 64, 32, None)
    assert [plane["strides"] for plane in described(ours)] == STRIDES[surface]
    by_the_words = []
    for plane in described(ours):
        _, columns, components = plane["shape"]
        item = int(plane["typestr"][2:])
        strides = (columns * components * item, components * item, item)
        by_the_words.append(SimpleNamespace(__cuda_array_interface__={**plane, "strides": strides}))
    again = device_input(SimpleNamespace(cuda=lambda: by_the_words), surface, 64, 32)
    assert described(again) == described(ours)


def test_planes_are_checked_one_by_one() -> None:
    """Planes of another size, sample or place are refused."""
    ours = CudaPlanes(4096, NvencSurface.NV12, 64, 32, None)
    with pytest.raises(EncoderFailed, match="P010"):
        device_input(ours, NvencSurface.P010, 64, 32)
    luma, chroma = (SimpleNamespace(__cuda_array_interface__=dict(plane)) for plane in described(ours))
    chroma.__cuda_array_interface__["data"] = (8192, False)
    with pytest.raises(EncoderFailed, match="gaps"):
        device_input(SimpleNamespace(cuda=lambda: [luma, chroma]), NvencSurface.NV12, 64, 32)
    with pytest.raises(EncoderFailed, match="no NV12 surface"):
        device_input(SimpleNamespace(cuda=lambda: [luma]), NvencSurface.NV12, 64, 32)


@pytest.mark.parametrize("pix_fmt", [*PIX_FMTS, "nv12", "bgra"])
def test_a_frame_that_lies_upside_down_is_read_from_its_top(pix_fmt: str) -> None:
    """FFmpeg turns pictures over by negative line sizes alone; what is encoded is what is shown."""
    frame = VideoFrame(WIDTH, HEIGHT, pix_fmt)
    for number, plane in enumerate(frame.planes):
        plane.update(np.random.default_rng(number).bytes(plane.buffer_size))
    over = turned_over(frame)
    assert all(plane.line_size < 0 for plane in over.planes)
    surface = PIX_FMTS.get(pix_fmt) or {"nv12": NvencSurface.NV12, "bgra": NvencSurface.ARGB}[pix_fmt]
    upright, turned = packed(frame, surface, WIDTH, HEIGHT), packed(over, surface, WIDTH, HEIGHT)
    at = 0
    for shape in surface.planes(WIDTH, HEIGHT):
        rows, again = (each[at : at + shape.size_bytes].reshape(-1, shape.row_bytes) for each in (upright, turned))
        # Of 4:2:2 the package counts both planes of chroma as one, in pairs.
        assert np.array_equal(again, rows[::-1])
        at += shape.size_bytes
