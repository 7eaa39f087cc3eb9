"""``frames`` and ``encode`` on a real GPU."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codecfleet
from codecfleet import Frame, FramesReport
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.surfaces.device_tensor import device_tensor
from codecfleet.testing.nvidia.surface_decoder import surface_of


async def _read(source: Path, options: dict[str, Any]) -> tuple[list[tuple[int, int, str]], FramesReport]:
    """Read a source's frames, as (number, ticks, hash) each."""
    async with codecfleet.frames(str(source), **options) as frames:
        told = [
            (frame.index, frame.ticks, hashlib.sha256(frame.to_ndarray().tobytes()).hexdigest())
            async for frame in frames
        ]
        return told, frames.report


async def _some(source: Path, count: int) -> list[Frame]:
    """Take some frames on the device, and hold them all."""
    async with codecfleet.frames(str(source), place="device") as frames:
        return [await anext(frames) for _ in range(count)]


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("place", ["host", "device"])
def test_frames_are_software_s(film: Path, place: str) -> None:
    """Decoded on NVDEC: the same samples, numbers and times as software's."""
    wanted, _ = asyncio.run(_read(film, {"decoder": "software"}))
    found, report = asyncio.run(_read(film, {"place": place}))
    assert found == wanted
    assert (set(report.decoded_by), report.fallbacks) == ({"nvdec"}, [])
    assert report.on_device == (place == "device")


def test_a_tensor_names_the_samples(film: Path, cuda: Cuda) -> None:
    """What lies at a tensor's address is the picture, which does not change while the frame is held."""
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
    """PyTorch's tensor begins where the frame does, and keeps it."""
    torch = pytest.importorskip("torch")
    (frame,) = asyncio.run(_some(film, 1))
    tensor = torch.from_dlpack(frame)
    assert tensor.data_ptr() == frame.__cuda_array_interface__["data"][0]
    wanted = frame.to_ndarray()[: frame.height]
    height = frame.height
    del frame
    assert np.array_equal(tensor[:height].cpu().numpy(), wanted)


@pytest.mark.usefixtures("cuda")
def test_frames_on_the_device_are_encoded(film: Path, tmp_path: Path) -> None:
    """By NVENC where there is one; else by software, with the reason: every frame at its time either way."""

    async def through() -> tuple[int, str, str]:
        frames = codecfleet.frames(film, place="device")
        report = await codecfleet.encode(frames, tmp_path / "out.mp4", preset=1)
        return report.frames_out, report.encoder, report.fallback

    frames, encoder, fallback = asyncio.run(through())
    assert frames == 240
    assert (encoder == "h264_nvenc") != bool(fallback)
