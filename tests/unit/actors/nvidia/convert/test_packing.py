"""Packing by kernels gives the bytes of the host, for any channels."""

import ctypes
from collections.abc import Callable
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from numpy.typing import NDArray

from codecfleet.actors.nvidia.convert.device_pictures import PicturePool
from codecfleet.actors.nvidia.convert.packing import CompiledPacking, CudaPacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.from_rgb import chroma_rows
from codecfleet.actors.surfaces.strided import StridedChannel, StridedPicture
from codecfleet.testing.nvidia.host_kernels import packed

from ..kernel_machine import HostCudaCore, KernelMachine

SIZES = [(2, 16), (66, 18), (64, 48), (160, 90), (34, 546)]
MATRICES = {1: Colorspace.ITU709, 6: Colorspace.ITU601, 9: Colorspace.BT2020}
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.BITEXACT
Pack = Callable[[StridedPicture], NDArray[np.uint8]]


@pytest.fixture(params=["reference", "kernels"])
def pack(request: pytest.FixtureRequest, core: HostCudaCore) -> Pack:
    """Return a packer: the reference, or the product's kernels on a device that runs them."""
    if request.param == "reference":
        return packed
    cuda = Cuda(KernelMachine(core=core))
    packer = CudaPacker(cuda, PicturePool(cuda), CompiledPacking(core, cuda), MemoryBudget(None))

    def by_kernels(picture: StridedPicture) -> NDArray[np.uint8]:
        found = packer.pack(picture)
        size_bytes = found.format.size_bytes(picture.width, picture.height)
        return np.frombuffer(ctypes.string_at(found.address, size_bytes), np.uint8)

    return by_kernels


def strided(channels: list[NDArray[Any]], pix_fmt: str, matrix: int | None = None) -> StridedPicture:
    """Return a picture whose channels are three views."""
    height, width = channels[0].shape
    format_ = surface_format(pix_fmt)
    assert isinstance(format_, SurfaceFormat)
    places = [StridedChannel(each.ctypes.data, each.strides[1], each.strides[0]) for each in channels]
    return StridedPicture(
        channels=(places[0], places[1], places[2]),
        width=width,
        height=height,
        pix_fmt=pix_fmt,
        format=format_,
        matrix=matrix,
        owner=channels,
    )


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("size", SIZES)
def test_rgb_is_what_ffmpeg_makes_of_it(pack: Pack, size: tuple[int, int], matrix: int) -> None:
    """Random and extreme pixels of every size and matrix become the bytes of swscale's NV12."""
    width, height = size
    for kind in ("noise", "extremes"):
        pixels = np.random.default_rng(matrix).integers(0, 256, (height, width, 4), dtype=np.uint8)
        pixels = pixels if kind == "noise" else np.where(pixels < 128, 0, 255).astype(np.uint8)
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:, :, :3]), format="rgb24")
        limited = ColorRange(1)
        wanted = frame.reformat(
            format="yuv420p", dst_colorspace=MATRICES[matrix], dst_color_range=limited, interpolation=EXACT, threads=1
        )
        found = pack(strided([pixels[:, :, number] for number in range(3)], "yuv420p", matrix))
        assert np.array_equal(found, wanted.reformat(format="nv12").to_ndarray().reshape(-1))


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p", "yuv420p10le"])
def test_samples_are_gathered_from_anywhere(pack: Pack, pix_fmt: str) -> None:
    """For any steps, also negative ones, a surface gets exactly the samples."""
    format_ = surface_format(pix_fmt)
    assert isinstance(format_, SurfaceFormat)
    wide, most = np.dtype(f"u{format_.sample_bytes}"), 1 << format_.bits
    random = np.random.default_rng(len(pix_fmt))
    planes = []
    for across, down in ((0, 0), *[(format_.halved_across, format_.halved_down)] * 2):
        memory = random.integers(0, most, (2 * (48 >> down), 3 * (64 >> across)), dtype=wide)
        planes.append(memory[::-2, ::3])
    found = pack(strided(planes, pix_fmt)).view(wide)
    luma, chroma = found[: 48 * 64], found[48 * 64 :]
    assert np.array_equal(luma, planes[0].reshape(-1))
    parts = (chroma[::2], chroma[1::2]) if format_.halved_across else np.split(chroma, 2)
    for part, plane in zip(parts, planes[1:], strict=True):
        assert np.array_equal(part, plane.reshape(-1))


@pytest.mark.parametrize("height", [16, 18, 480, 1080, 2160])
def test_rows_of_chroma_keep_a_constant(height: int) -> None:
    """The weights of each row sum to one, and no row is outside the picture."""
    rows = chroma_rows(height)
    assert len(rows.firsts) == height // 2
    assert {sum(weights) for weights in rows.weights} == {1 << 12}
    assert min(rows.firsts) >= 0
    assert max(rows.firsts) + 8 == height
