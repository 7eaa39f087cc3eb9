"""Pictures for the encoder's tests: made, put on the simulated device, decoded again and compared.

Child processes under the simulated driver import this as ``tests.driver_sim.nvenc_pictures``.
"""

import base64
import ctypes
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HEIGHT",
    "WIDTH",
    "DevicePicture",
    "chroma_means",
    "decoded",
    "luma",
    "nv12",
    "packed",
    "psnr_db",
    "unpacked",
]

WIDTH = 192
HEIGHT = 128
_DECODERS = {"h264": "h264", "hevc": "hevc", "av1": "libdav1d"}


def luma(index: int) -> NDArray[np.uint8]:
    """Return the luma plane of picture ``index``: a slope that moves, so that no two neighbours are alike."""
    slope = np.add.outer(np.arange(HEIGHT) * 2, np.arange(WIDTH)) + index * 9
    return (slope % 220 + 16).astype(np.uint8)


def nv12(index: int) -> NDArray[np.uint8]:
    """Return picture ``index`` as NV12: the luma plane above the interleaved chroma plane."""
    picture = np.empty((HEIGHT * 3 // 2, WIDTH), np.uint8)
    picture[:HEIGHT] = luma(index)
    picture[HEIGHT:, 0::2] = 100 + index
    picture[HEIGHT:, 1::2] = 150 - index
    return picture


class _Plane:
    """A plane in device memory that says so by the CUDA array interface."""

    def __init__(self, address: int, shape: tuple[int, int, int]) -> None:
        rows, columns, samples = shape
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "typestr": "|u1",
            "shape": (rows, columns, samples),
            "strides": (columns * samples, samples, 1),
            "stream": 1,
        }


class DevicePicture:
    """An NV12 picture in the device's memory, as the package takes it: ``cuda()`` gives its planes."""

    def __init__(self, picture: NDArray[np.uint8]) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(picture.nbytes)
        steps = (
            cuda.cuInit(0),
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            cuda.cuCtxSetCurrent(context),
            cuda.cuMemAlloc_v2(ctypes.byref(address), size),
            cuda.cuMemcpyHtoD_v2(address, picture.ctypes.data_as(ctypes.c_void_p), size),
        )
        assert steps == (0, 0, 0, 0, 0)
        self._address = address.value

    def cuda(self) -> list[_Plane]:
        """Return the luma plane and the chroma plane."""
        chroma = self._address + WIDTH * HEIGHT
        return [_Plane(self._address, (HEIGHT, WIDTH, 1)), _Plane(chroma, (HEIGHT // 2, WIDTH // 2, 2))]


def packed(packets: Iterable[Mapping[str, Any]]) -> str:
    """Return an encoder's packets as one line of text, for the process that asked for them."""
    return json.dumps([{**each, "data": base64.b64encode(each["data"]).decode()} for each in packets])


def unpacked(text: str) -> list[dict[str, Any]]:
    """Return the packets that ``packed`` wrote."""
    return [{**each, "data": base64.b64decode(each["data"])} for each in json.loads(text)]


def decoded(codec: str, packets: Sequence[Mapping[str, Any]]) -> list[av.VideoFrame]:
    """Decode a stream; the frames come in the order in which they are shown."""
    context = av.CodecContext.create(_DECODERS[codec], "r")
    assert isinstance(context, av.VideoCodecContext)
    if codec == "av1":
        parsed = [av.Packet(each["data"]) for each in packets]
    else:
        parsed = [*context.parse(b"".join(each["data"] for each in packets)), *context.parse(b"")]
    return [frame for packet in [*parsed, None] for frame in context.decode(packet)]


def psnr_db(frame: av.VideoFrame, index: int) -> float:
    """Return how near a decoded frame's luma is to picture ``index``; the depth of both is brought to 8 bits."""
    plane = frame.planes[0]
    deep = "10" in frame.format.name
    samples = np.frombuffer(plane, np.uint16 if deep else np.uint8).reshape(HEIGHT, -1)[:, :WIDTH]
    error = np.mean((samples.astype(float) / (4 if deep else 1) - luma(index)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def chroma_means(frame: av.VideoFrame) -> tuple[float, float]:
    """Return the means of a decoded 8-bit frame's U and V planes."""
    samples = (np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width] for plane in frame.planes[1:])
    u, v = (float(plane.mean()) for plane in samples)
    return u, v
