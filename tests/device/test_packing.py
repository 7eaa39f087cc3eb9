"""Packing on a real GPU gives the bytes of FFmpeg and of the reference."""

import ctypes
from collections.abc import Iterator

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from numpy.typing import NDArray

from codecfleet.actors.nvidia.convert.device_pictures import PicturePool
from codecfleet.actors.nvidia.convert.packing import CompiledPacking, CudaPacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget, PinnedMemory
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.strided import StridedChannel, StridedPicture

SIZES = [(64, 48), (1920, 1080), (3840, 2160), (2, 16), (1366, 768)]
MATRICES = {1: Colorspace.ITU709, 6: Colorspace.ITU601, 9: Colorspace.BT2020}
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.BITEXACT


class Bench:
    """A packer, and arrays on the device."""

    def __init__(self, cuda: Cuda) -> None:
        kernels, reason = compiled(CompiledPacking, cuda)
        assert kernels is not None, reason
        self.cuda = cuda
        self.pinned = PinnedMemory(cuda)
        self.stream = cuda.stream()
        self.packer = CudaPacker(cuda, PicturePool(cuda), kernels, MemoryBudget(None))
        self.held: list[int] = []

    def put(self, array: NDArray[np.uint8]) -> int:
        """Return the address of an array's copy."""
        address = self.cuda.allocate(array.nbytes)
        self.held.append(address)
        buffer = self.pinned.acquire(array.nbytes)
        np.asarray(buffer)[:] = array.reshape(-1)
        self.cuda.copy_to_device(address, buffer.address, array.nbytes, self.stream)
        self.stream.wait()
        return address

    def pack(self, picture: StridedPicture) -> bytes:
        """Return the bytes of a packed picture."""
        found = self.packer.pack(picture)
        size_bytes = found.format.size_bytes(picture.width, picture.height)
        buffer = self.pinned.acquire(size_bytes)
        self.cuda.copy_to_host(buffer.address, found.address, size_bytes, self.stream)
        self.stream.wait()
        return ctypes.string_at(buffer.address, size_bytes)

    def close(self) -> None:
        """Free all."""
        self.packer.close()
        self.stream.close()
        for address in self.held:
            self.cuda.free(address)


@pytest.fixture
def bench(cuda: Cuda) -> Iterator[Bench]:
    """Provide the GPU with its kernels; a GPU machine must have NVRTC."""
    bench = Bench(cuda)
    yield bench
    bench.close()


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("size", SIZES)
def test_rgb_is_what_ffmpeg_makes_of_it(bench: Bench, size: tuple[int, int], matrix: int) -> None:
    """Pitched ABGR of every size and matrix becomes the bytes of swscale's NV12."""
    width, height = size
    pixels = np.random.default_rng(matrix).integers(0, 256, (height, width + 13, 4), dtype=np.uint8)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:, :width, :3]), format="rgb24")
    wanted = frame.reformat(
        format="yuv420p",
        dst_colorspace=MATRICES[matrix],
        dst_color_range=ColorRange(1),
        interpolation=EXACT,
        threads=1,
    ).reformat(format="nv12")
    address, row_bytes = bench.put(pixels), pixels.strides[0]
    red, green, blue = (StridedChannel(address + number, 4, row_bytes) for number in range(3))
    found = bench.pack(_picture((red, green, blue), size, matrix))
    assert found == wanted.to_ndarray().tobytes()


def test_planes_apart_are_gathered(bench: Bench) -> None:
    """YUV420 from three memories, one of them upside down, becomes NV12."""
    random = np.random.default_rng(5)
    luma, blue, red = (
        random.integers(0, 256, shape, dtype=np.uint8) for shape in ((1080, 2048), (540, 960), (540, 960))
    )
    channels = (
        StridedChannel(bench.put(luma), 1, 2048),
        StridedChannel(bench.put(blue), 1, 960),
        StridedChannel(bench.put(red) + 539 * 960, 1, -960),
    )
    found = np.frombuffer(bench.pack(_picture(channels, (1920, 1080))), np.uint8)
    assert np.array_equal(found[: 1080 * 1920].reshape(1080, 1920), luma[:, :1920])
    pairs = found[1080 * 1920 :].reshape(540, 960, 2)
    assert np.array_equal(pairs[:, :, 0], blue)
    assert np.array_equal(pairs[:, :, 1], red[::-1])


def _picture(
    channels: tuple[StridedChannel, StridedChannel, StridedChannel], size: tuple[int, int], matrix: int | None = None
) -> StridedPicture:
    format_ = surface_format("yuv420p")
    assert isinstance(format_, SurfaceFormat)
    width, height = size
    return StridedPicture(
        channels=channels,
        width=width,
        height=height,
        pix_fmt="yuv420p",
        format=format_,
        matrix=matrix,
        owner=None,
    )
