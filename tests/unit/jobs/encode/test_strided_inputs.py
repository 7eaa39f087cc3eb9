"""Pictures on the device in layouts that NVENC cannot read are packed there or on the host, into the same file."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.device.streams import HeldPicture
from codecfleet.actors.nvidia.cuda.device_memory import PooledDeviceBuffer
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.surfaces.device_frame import DevicePicture
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.errors import DeviceMemory, EngineUnfit, UsageError
from codecfleet.jobs.encode.device_inputs import DeviceInput, find_tensor, strided_picture
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_device import FakeDevice

from ..frame_encoding import by_interface as shown
from ..frame_encoding import encode
from ..frame_encoding import put as on_device

WIDTH, HEIGHT, COUNT = 64, 48, 3


def samples(number: int, pix_fmt: str) -> NDArray[Any]:
    """Return a picture as one array."""
    frame = picture(number, WIDTH, HEIGHT).reformat(format=pix_fmt)
    if pix_fmt == "p010le":  # PyAV makes no array of this format
        return np.concatenate([plane.reshape(-1, WIDTH) for plane in plane_arrays(frame)])
    return np.asarray(frame.to_ndarray())


def pitched(device: FakeDevice, array: NDArray[Any]) -> Any:
    """Return rows with a gap after each, as cuMemAllocPitch makes them."""
    wide = on_device(device, np.full((array.shape[0], array.shape[1] + 192), 7, array.dtype))
    wide[:, : array.shape[1]] = array
    return shown(wide[:, : array.shape[1]])


def planes_apart(device: FakeDevice, array: NDArray[Any]) -> Any:
    """Return luma and chroma of NV12 in separate memory, chroma with a pitch."""
    luma = on_device(device, array[:HEIGHT])
    wide = on_device(device, np.zeros((HEIGHT // 2, WIDTH + 64), array.dtype))
    wide[:, :WIDTH] = array[HEIGHT:]
    step = array.itemsize
    pairs = np.lib.stride_tricks.as_strided(
        wide, (HEIGHT // 2, WIDTH // 2, 2), (wide.strides[0], 2 * step, step), writeable=False
    )
    return SimpleNamespace(cuda=lambda: [shown(luma.reshape(HEIGHT, WIDTH, 1)), shown(pairs)], owner=wide)


def three_planes(device: FakeDevice, array: NDArray[Any]) -> Any:
    """Return Y, U and V of yuv420p in separate memory."""
    rows, columns = HEIGHT // 2, WIDTH // 2
    parts = (array[:HEIGHT], *array[HEIGHT:].reshape(2, rows, columns))
    held = [on_device(device, np.ascontiguousarray(part)) for part in parts]
    return SimpleNamespace(cuda=lambda: [shown(each.reshape(*each.shape, 1)) for each in held], owner=held)


def channels_first(device: FakeDevice, array: NDArray[Any]) -> Any:
    """Return (rows, columns, channels) as a view of (channels, rows, columns), as ``permute`` does."""
    return shown(on_device(device, np.ascontiguousarray(array.transpose(2, 0, 1))).transpose(1, 2, 0))


def upside_down(device: FakeDevice, array: NDArray[Any]) -> Any:
    """Return rows that are stored from last to first."""
    return shown(on_device(device, np.ascontiguousarray(array[::-1]))[::-1])


WAYS: dict[str, tuple[str, Callable[[FakeDevice, NDArray[Any]], Any]]] = {
    "nv12 pitched": ("nv12", pitched),
    "p010 pitched": ("p010le", pitched),
    "nv12 planes apart": ("nv12", planes_apart),
    "YUV420 rows": ("yuv420p", lambda device, array: shown(on_device(device, array))),
    "YUV420 planes": ("yuv420p", three_planes),
    "ARGB": ("bgra", lambda device, array: shown(on_device(device, array))),
    "BGRA": ("argb", lambda device, array: shown(on_device(device, array))),
    "ABGR pitched": (
        "rgba",
        lambda device, array: shown(on_device(device, np.pad(array, ((0, 0), (0, 9), (0, 0))))[:, :WIDTH]),
    ),
    "RGB channels first": ("rgb24", channels_first),
    "BGR upside down": ("bgr24", upside_down),
}


class _WithoutKernels(Gpu):
    """A device whose kernels cannot be compiled."""

    def open_packer(self) -> Any:
        message = "kernels cannot be compiled here"
        raise EngineUnfit(message, "Install NVRTC.")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernels", [True, False], ids=["packed", "fetched"])
def test_the_file_is_that_of_the_host(tmp_path: Path, way: str, *, kernels: bool) -> None:
    """In every layout on the device, with or without kernels, NVENC gives the bytes of the host's picture."""
    pix_fmt, put = WAYS[way]
    device = FakeDevice()
    if not kernels:
        device.gpu = _WithoutKernels(device.opened)
    device.gpu.opened()
    arrays = [samples(number, pix_fmt) for number in range(COUNT)]
    options = {"fps": 25, "encoder": "nvenc", "codec": "hevc", "input_pix_fmt": pix_fmt, "matrix": "bt601"}
    wanted = encode(arrays, tmp_path / "host.mp4", device, **options)
    found = encode([put(device, each) for each in arrays], tmp_path / "device.mp4", device, **options)
    assert (found.output_sha256, found.pix_fmt) == (wanted.output_sha256, wanted.pix_fmt)
    assert found.from_device is kernels


@pytest.mark.parametrize("shape", [(HEIGHT, WIDTH // 2, 2), (HEIGHT, WIDTH, 1), (HEIGHT, WIDTH)])
def test_chroma_in_pairs_is_read_however_its_axes_are_cut(shape: tuple[int, ...]) -> None:
    """Chroma pairs are read as a separate axis and as neighbours in a row, as in the package's 4:2:2 frames."""
    memory = np.zeros((2 * HEIGHT, WIDTH), np.uint8)
    planes = [shown(memory[:HEIGHT].reshape(HEIGHT, WIDTH, 1)), shown(memory[HEIGHT:].reshape(shape))]
    found = find_tensor(SimpleNamespace(cuda=lambda: planes))
    assert isinstance(found, DeviceInput)
    strided = strided_picture(found, "nv16", None)
    assert strided is not None
    assert strided.is_tight
    assert strided.channels == (
        (memory.ctypes.data, 1, WIDTH),
        (memory[HEIGHT:].ctypes.data, 2, WIDTH),
        (memory[HEIGHT:].ctypes.data + 1, 2, WIDTH),
    )


def test_software_waits_for_the_stream_that_is_named(tmp_path: Path) -> None:
    """Software waits for the caller's stream, so the file equals that of the host."""
    device = FakeDevice()
    gpu = device.gpu.opened()
    stream, wanted = gpu.cuda.stream().number, samples(0, "nv12")
    there = on_device(device, np.zeros_like(wanted))
    device.driver.put(stream, lambda: np.copyto(there, wanted) or 0)
    options = {"fps": 25, "encoder": "software", "codec": "h264"}
    found = encode([shown(there)], tmp_path / "device.mp4", device, stream=stream, **options)
    assert found.output_sha256 == encode([wanted], tmp_path / "host.mp4", device, **options).output_sha256


class _Held(HeldPicture):
    """A picture that another interface holds on a GPU; it counts how many times it is read."""

    def __init__(self, device: FakeDevice, ordinal: int) -> None:
        self.reads = 0
        with closing(device.gpu.open_mover()) as mover:
            self._picture = mover.to_device(picture(0, WIDTH, HEIGHT).reformat(format="yuv420p"))
        owner = self._picture.frame.owner
        assert isinstance(owner, PooledDeviceBuffer)
        owner.device = ordinal

    def read(self) -> DevicePicture:
        self.reads += 1
        return self._picture


def test_a_held_picture_is_read_once_and_on_its_own_gpu(tmp_path: Path) -> None:
    """A held picture is read once; one on another GPU than the encoder's is refused."""
    device = FakeDevice()
    held = _Held(device, 0)
    assert encode([held], tmp_path / "out.mp4", device, fps=25, encoder="nvenc").from_device
    assert held.reads == 1
    with pytest.raises(UsageError, match="is on GPU 1 of this process"):
        encode([_Held(device, 1)], tmp_path / "out.mp4", device, fps=25, encoder="nvenc", overwrite=True)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Planes with wrong sides, and samples of another width, get one error each, and the device stays usable."""
    device = FakeDevice()
    device.gpu.opened()
    nv12 = samples(0, "nv12")
    luma = shown(on_device(device, nv12[:HEIGHT].reshape(HEIGHT, WIDTH, 1)))
    chroma = shown(on_device(device, nv12[HEIGHT:-2].reshape(-1, WIDTH // 2, 2)))
    wide = shown(on_device(device, nv12.astype(np.uint16)))
    for item, said in (
        (SimpleNamespace(cuda=lambda: [luma, chroma]), "their sides do not fit"),
        (wide, "samples of 2 bytes are not nv12"),
    ):
        with pytest.raises(UsageError, match=said):
            encode([item], tmp_path / "out.mp4", device, fps=25, input_pix_fmt="nv12")
    assert encode([pitched(device, nv12)], tmp_path / "out.mp4", device, fps=25).from_device


def test_a_packer_gives_its_memory_back(tmp_path: Path) -> None:
    """After an RGB encode only pooled pictures are left on the device; without room the error is DeviceMemory."""
    device = FakeDevice()
    gpu = device.gpu.opened()
    items = [shown(on_device(device, samples(number, "rgb24"))) for number in range(COUNT)]
    streams = len(device.driver.streams) - len(gpu.movers)
    assert encode(items, tmp_path / "out.mp4", device, fps=25, encoder="nvenc").from_device
    assert len(device.driver.streams) - len(gpu.movers) == streams
    assert gpu.memory.drop_oldest()
    while gpu.memory.drop_oldest():
        pass
    assert gpu.budget.taken_bytes == 0
    packer = device.gpu.open_packer()
    device.driver.faults["cuMemAlloc"] = 2
    found = find_tensor(items[0])
    assert isinstance(found, DeviceInput)
    strided = strided_picture(found, "rgb24", 1)
    assert strided is not None
    with pytest.raises(DeviceMemory):
        packer.pack(strided)
    packer.close()
    while gpu.memory.drop_oldest():
        pass
    assert gpu.budget.taken_bytes == 0
