"""EGLStreams and EGLImages on a real GPU; ``benchmarks/egl_stream.py`` tries more, in processes that may crash."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

import codecfleet
from codecfleet import EglImage, EglStream, Frame
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.egl.gles import GlesTexture
from codecfleet.actors.nvidia.egl.images import pixels_seen
from codecfleet.actors.nvidia.egl.library import device_display
from codecfleet.errors import DeviceError

SIZE = (64, 48)


@pytest.fixture(autouse=True)
def _display(cuda: Cuda) -> None:
    """Skip the test if the GPU has no EGL display, for example without libegl1."""
    del cuda
    try:
        device_display()
    except DeviceError as error:
        pytest.skip(f"{error.message} (Debian's package: libegl1)")


def fence() -> int:
    """Return a sync for all OpenGL commands so far (EGL_SYNC_FENCE_KHR)."""
    display = device_display()
    return int(display.egl.call("eglCreateSyncKHR", display.handle, 0x30F9, None))


def pictures(count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield NV12 pictures of one value each."""
    for number in range(count):
        yield np.full((SIZE[1] * 3 // 2, SIZE[0]), number + 1, np.uint8)


async def through(stream: EglStream, place: str, memory: str) -> list[Frame]:
    """Present pictures into a stream, and return the frames that come out."""
    presenting = asyncio.create_task(codecfleet.present(pictures(20), stream, memory=memory))  # type: ignore[arg-type]
    async with codecfleet.frames(stream, place=place) as frames:  # type: ignore[arg-type]
        found = [frame async for frame in frames]
    assert (await presenting).consumed
    return found


@pytest.mark.parametrize(("place", "memory"), [("device", "pitch"), ("host", "array")])
def test_a_fifo_carries_every_frame_in_order(place: str, memory: str) -> None:
    """Presented pictures arrive with their bytes, numbers and times."""
    with EglStream(fifo_frames=4, fps=25) as stream:
        found = asyncio.run(through(stream, place, memory))
    assert [frame.index for frame in found] == list(range(20))
    assert all((frame.to_ndarray() == frame.index + 1).all() for frame in found)
    assert {frame.on_device for frame in found} == {place == "device"}


def test_cuda_and_opengl_see_the_same_pixels() -> None:
    """An EGLImage of a texture is read and written if a trial shows that this works."""
    seen = pixels_seen()
    if not (seen.reads and seen.writes):
        pytest.skip(f"the trial of EGLImages: {seen}")
    drawn = np.random.default_rng(0).integers(0, 256, (77, 333, 4), np.uint8)
    with GlesTexture(device_display(), 333, 77) as texture:
        texture.write(drawn)
        with EglImage(texture.image, ready=fence()) as image:
            read = image.read()
            assert isinstance(read, VideoFrame)
            assert np.array_equal(read.to_ndarray(), drawn)
            image.write(VideoFrame.from_ndarray(255 - drawn, format="rgba"))
            assert np.array_equal(texture.read(), 255 - drawn)
