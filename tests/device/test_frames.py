"""``frames`` and ``encode`` on a real GPU."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

import codecfleet
from codecfleet import Frame
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.surfaces.device_tensor import device_tensor
from codecfleet.testing.nvidia.surface_decoder import surface_of


async def _some(source: Path, count: int) -> list[Frame]:
    """Return some frames on the device, all held at the same time."""
    async with codecfleet.frames(str(source), place="device") as frames:
        return [await anext(frames) for _ in range(count)]


def test_a_tensor_names_the_samples(film: Path, cuda: Cuda) -> None:
    """A tensor's address has the picture, which does not change while the frame is held."""
    frames = asyncio.run(_some(film, 50))
    stream = cuda.stream()
    for frame in frames:
        tensor, picture = device_tensor(frame), frame.device_picture
        assert picture is not None
        rows = np.empty(int(np.prod(tensor.shape)) * tensor.item_bytes, dtype=np.uint8)
        cuda.push()
        cuda.copy_to_host(rows.ctypes.data, tensor.address, rows.nbytes, stream)
        stream.wait()
        assert np.array_equal(rows, surface_of(frame.to_video_frame(), picture.format))
    stream.close()


@pytest.mark.usefixtures("cuda")
def test_torch_takes_a_frame_without_a_copy(film: Path) -> None:
    """PyTorch's tensor begins at the frame's address, and keeps the frame alive."""
    torch = pytest.importorskip("torch")
    (frame,) = asyncio.run(_some(film, 1))
    tensor = torch.from_dlpack(frame)
    assert tensor.data_ptr() == frame.__cuda_array_interface__["data"][0]
    wanted = frame.to_ndarray()[: frame.height]
    height = frame.height
    del frame
    assert np.array_equal(tensor[:height].cpu().numpy(), wanted)
