"""Pictures for the package: sizes are checked, samples copied exactly, host and device distinguished."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.profiles import NVENC_PIX_FMTS
from codecfleet.actors.nvidia.nvenc.inputs import device_input, host_input
from codecfleet.actors.surfaces.device_frame import DeviceFrame, DevicePlane, device_planes
from codecfleet.actors.surfaces.formats import SurfaceLayout
from codecfleet.errors import EncoderFailed
from codecfleet.testing.clips import turned_over
from tests.device.conversion_cases import FORMATS

WIDTH, HEIGHT = 66, 34  # rows that FFmpeg pads
PIX_FMTS = NVENC_PIX_FMTS
SURFACES = {name: FORMATS[name] for name in PIX_FMTS}
NV12, P010 = SURFACES["yuv420p"], SURFACES["yuv420p10le"]


def frame_of(pix_fmt: str, seed: int) -> tuple[VideoFrame, list[np.ndarray[Any, Any]]]:
    """Return a frame of noise and the samples of its planes."""
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
    """Every sample is at its place in the surface: chroma in pairs, 10 bits in the upper bits, no padding."""
    frame, samples = frame_of(pix_fmt, seed)
    surface = SURFACES[pix_fmt]
    data = host_input(frame, surface, WIDTH, HEIGHT)
    planes_there = device_planes(surface, 0, WIDTH, HEIGHT)
    read = data.view("<u2") >> 6 if pix_fmt.endswith("10le") else data
    at = 0
    planes = []
    for plane in planes_there:
        count = plane.rows * WIDTH
        planes.append(read[at : at + count].reshape(plane.rows, WIDTH))
        at += count
    assert np.array_equal(planes[0], samples[0])
    pairs = planes[1].reshape(planes[1].shape[0], -1, 2)
    chroma = [pairs[:, :, 0], pairs[:, :, 1]] if len(planes) == 2 else planes[1:]
    assert all(np.array_equal(found, wanted) for found, wanted in zip(chroma, samples[1:], strict=True))


@pytest.mark.parametrize(("pix_fmt", "width"), [("yuv420p", WIDTH + 2), ("yuv422p", WIDTH)])
def test_another_frame_is_refused(pix_fmt: str, width: int) -> None:
    """A frame of another size or format is refused, not converted."""
    with pytest.raises(EncoderFailed, match=pix_fmt):
        host_input(VideoFrame(width, HEIGHT, pix_fmt), NV12, WIDTH, HEIGHT)


def test_what_is_no_picture_is_refused() -> None:
    """Text, numbers, and pictures in the other memory are refused."""
    for pixels in ("text", 3, None, device_frame()):
        with pytest.raises(EncoderFailed, match="takes pictures in host memory"):
            host_input(pixels, NV12, 64, 32)
    for pixels in ("text", 3, None, VideoFrame(64, 32, "yuv420p")):
        with pytest.raises(EncoderFailed, match="takes pictures in device memory"):
            device_input(pixels, NV12, 64, 32)


def device_frame(*, gap_bytes: int = 0, pitch_bytes: int = 64, bits: int = 8) -> DeviceFrame:
    """Return an NV12 frame at a made-up address."""
    luma = DevicePlane(4096, pitch_bytes, 64, 32)
    chroma = DevicePlane(4096 + 64 * 32 + gap_bytes, pitch_bytes, 64, 16)
    return DeviceFrame(layout=SurfaceLayout.NV12, bits=bits, width=64, height=32, planes=(luma, chroma), owner=object())


def test_a_device_frame_with_gaps_or_another_format_is_refused() -> None:
    """The package takes only contiguous planes without padding."""
    for frame in (device_frame(gap_bytes=64), device_frame(pitch_bytes=128)):
        with pytest.raises(EncoderFailed, match="gaps"):
            device_input(frame, NV12, 64, 32)
    for surface, width in ((P010, 64), (NV12, 32)):
        with pytest.raises(EncoderFailed, match="NV12"):
            device_input(device_frame(), surface, width, 32)
    with pytest.raises(EncoderFailed, match="12"):
        device_input(device_frame(bits=12), NV12, 64, 32)


@pytest.mark.parametrize("pix_fmt", PIX_FMTS)
def test_a_frame_that_lies_upside_down_is_read_from_its_top(pix_fmt: str) -> None:
    """FFmpeg flips pictures by negative line sizes; the encoder gets the displayed order of rows."""
    frame = VideoFrame(WIDTH, HEIGHT, pix_fmt)
    for number, plane in enumerate(frame.planes):
        plane.update(np.random.default_rng(number).bytes(plane.buffer_size))
    over = turned_over(frame)
    assert all(plane.line_size < 0 for plane in over.planes)
    surface = SURFACES[pix_fmt]
    upright, turned = host_input(frame, surface, WIDTH, HEIGHT), host_input(over, surface, WIDTH, HEIGHT)
    at = 0
    for plane in device_planes(surface, 0, WIDTH, HEIGHT):
        size_bytes = plane.rows * plane.row_bytes
        rows, again = (each[at : at + size_bytes].reshape(-1, plane.row_bytes) for each in (upright, turned))
        # for 4:2:2 the package counts both chroma planes as one plane of pairs
        assert np.array_equal(again, rows[::-1])
        at += size_bytes
