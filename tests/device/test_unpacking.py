"""The kernel that unpacks surfaces, on a real GPU: the result is the picture."""

import numpy as np
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.nvidia.convert.unpacking import PictureFetcher, Unpacker
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.nvidia.cuda.memory import PinnedMemory
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.host_pictures import packed_surface, plane_samples

PIX_FMTS = [f"yuv{chroma}p{depth}" for chroma in (420, 422, 444) for depth in ("", "10le", "12le")]
SIZES = [(2, 2), (16, 2), (30, 6), (34, 4), (62, 18), (64, 64), (130, 70), (854, 480), (1920, 1080), (4098, 34)]
"""Widths around whole vectors, and rows that do not begin at a vector."""


@pytest.fixture(scope="session")
def unpacker(cuda: Cuda) -> Unpacker:
    """The kernel."""
    found, _ = compiled(Unpacker, cuda)
    if found is None:
        pytest.skip("NVRTC does not compile the kernel here")
    return found


def noise(pix_fmt: str, format_: SurfaceFormat, size: tuple[int, int], seed: int) -> VideoFrame:
    """Return a picture of noise, whose significant bits are random."""
    picture = VideoFrame(*size, pix_fmt)
    random = np.random.default_rng(seed)
    for samples in plane_samples(picture, format_):
        samples[:] = random.integers(0, 1 << format_.bits, samples.shape)
    return picture


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("pix_fmt", PIX_FMTS)
def test_a_surface_comes_as_its_picture(cuda: Cuda, unpacker: Unpacker, pix_fmt: str, size: tuple[int, int]) -> None:
    """Samples are equal for three surfaces in a row, each of which overwrites the previous one in the stream."""
    format_ = surface_format(pix_fmt)
    assert format_ is not None
    cuda.push()
    pictures = [noise(pix_fmt, format_, size, seed) for seed in range(3)]
    memory, stream = PinnedMemory(cuda), cuda.stream()
    fetcher = PictureFetcher(cuda, memory, unpacker, format_=format_, size=size, pix_fmt=pix_fmt)
    surface = cuda.allocate(format_.size_bytes(*size))
    staged, begun = [], []
    for picture in pictures:
        staged.append(memory.acquire(format_.size_bytes(*size)))
        packed_surface(picture, format_, np.asarray(staged[-1]))
        cuda.copy_to_device(surface, staged[-1].address, format_.size_bytes(*size), stream)
        begun.append(fetcher.begin(surface, stream))
    stream.wait()
    fetched = [picture() for picture in begun]
    fetcher.close()
    cuda.free(surface)
    stream.close()
    assert [picture_hash(0, each).digest for each in fetched] == [picture_hash(0, each).digest for each in pictures]
