"""Frames in every form that an encoder accepts, and the resulting files."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

import codecfleet
from codecfleet import EncodeReport
from codecfleet.testing.clips import picture
from codecfleet.testing.nvidia.fake_device import FakeDevice
from tests.device_tensor import FakeDeviceTensor

WIDTH, HEIGHT, COUNT = 64, 48, 12
TIMES = [Fraction(n, 25) + Fraction(n // 4, 100) for n in range(COUNT)]
CODECS = ["h264", "hevc", "av1"]


def rgb(number: int) -> NDArray[np.uint8]:
    """Return a picture as rows, columns and channels."""
    return np.asarray(picture(number, WIDTH, HEIGHT).to_ndarray(format="rgb24"))


def nv12(number: int) -> NDArray[np.uint8]:
    """Return a picture as the rows of NV12."""
    return np.asarray(picture(number, WIDTH, HEIGHT).reformat(format="nv12").to_ndarray())


def timed(number: int) -> VideoFrame:
    """Return a software frame at its time."""
    frame = picture(number, WIDTH, HEIGHT)
    frame.pts, frame.time_base = int(TIMES[number] * 100), Fraction(1, 100)
    return frame


def put(device: FakeDevice, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of this shape and content in the fake device's memory."""
    address = int(device.driver.cuMemAlloc(array.nbytes)[1])
    memory = np.ctypeslib.as_array(device.driver.memory[address])
    found: NDArray[Any] = memory.view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def by_interface(view: NDArray[Any], stream: int | None = None) -> Any:
    """Return an array of the device with the CUDA array interface, with strides and the stream that fills it."""
    data: dict[str, object] = {"shape": view.shape, "strides": view.strides, "typestr": view.dtype.str, "version": 3}
    data |= {"data": (view.ctypes.data, False)} | ({} if stream is None else {"stream": stream})
    return SimpleNamespace(__cuda_array_interface__=data, owner=view)


def on_device(device: FakeDevice, number: int, kind: str) -> object:
    """Return a picture in the fake device's memory, as a tensor or by the CUDA array interface."""
    rows = put(device, nv12(number))
    if kind == "tensor":
        return FakeDeviceTensor(rows.ctypes.data, (1, 1, *rows.shape), item_bytes=1)
    return by_interface(rows)


async def given(items: Iterable[Any]) -> AsyncIterator[Any]:
    """Yield items as an asynchronous source."""
    for item in items:
        yield item


def encode(items: object, output: Path, device: FakeDevice | None = None, **options: Any) -> EncodeReport:
    """Encode, in a new event loop."""
    gpu = (device or FakeDevice()).gpu
    return asyncio.run(codecfleet.encode(items, output, gpu=gpu, **({"preset": 1} | options)))  # type: ignore[arg-type]


def shown(path: Path) -> list[VideoFrame]:
    """Decode a file."""
    with av.open(str(path)) as container:
        return list(container.decode(container.streams.video[0]))


def seconds(frames: list[VideoFrame]) -> list[Fraction]:
    """Return the frames' times."""
    return [(frame.pts or 0) * Fraction(frame.time_base or 0) for frame in frames]


def close(frame: VideoFrame, number: int) -> bool:
    """Return whether a decoded frame is picture ``number``, within coding noise."""
    wanted = picture(number, WIDTH, HEIGHT).reformat(format=frame.format.name).to_ndarray().astype(int)
    return bool(np.abs(frame.to_ndarray().astype(int) - wanted).mean() < 12)


def failing() -> Iterator[object]:
    """Yield a frame, and fail."""
    yield picture(0, WIDTH, HEIGHT)
    message = "the camera fell over"
    raise RuntimeError(message)


CBR = {"fps": 25, "encoder_options": (("rc", "cbr"), ("bitrate", "9000"))}
