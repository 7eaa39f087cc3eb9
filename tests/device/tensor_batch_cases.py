"""Batches that a device must make bit for bit as the host does, on a GPU or on its substitute."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.nvidia.convert.device_pictures import PicturePool
from codecfleet.actors.nvidia.convert.tensor_kernel import TensorKernels
from codecfleet.actors.nvidia.convert.tensors import CudaTensors
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.actors.surfaces.frames import Frame
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.actors.tensors.tensor_format import TensorFormat
from codecfleet.actors.tensors.tensor_memory import HostBfloat16

from .tensor_cases import noise, picture_at, surface_of_picture

PIX_FMTS = [f"yuv{chroma}p{depth}" for chroma in (420, 422, 444) for depth in ("", "10le", "12le")]
COLOURS = [
    Colour(),
    *(Colour(range=1 + matrix % 2, matrix=matrix, chroma_location=matrix % 7) for matrix in (1, 4, 5, 6, 7, 9)),
]
NORMALISED: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


@dataclass(frozen=True)
class BatchCase:
    """Pictures of one kind, and the tensor that is made of them."""

    pix_fmt: str
    size: tuple[int, int]
    colour: Colour
    format: TensorFormat
    pictures: int = 2

    def frames(self) -> list[Frame]:
        """Return frames of noise on the host."""
        format_ = VideoFormat(*self.size, self.pix_fmt, 25, colour=self.colour)  # type: ignore[arg-type]
        return [
            Frame(index=0, ticks=0, time_base=1, start_ticks=0, format=format_, _picture=self.noise(seed))  # type: ignore[arg-type]
            for seed in range(self.pictures)
        ]

    def noise(self, seed: int) -> VideoFrame:
        """Return a picture of noise."""
        return noise(self.pix_fmt, self.size, seed)


def cases() -> Iterator[BatchCase]:
    """Yield every combination of format, type and layout, each with some size, crop, filter and colour."""
    shapes: list[dict[str, Any]] = [
        {"size": (20, 12)},
        {"size": (33, 50), "crop": (3, 5, 21, 14)},
        {},
        {"size": (7, 90), "crop": (0, 0, 1, 1)},
        {"crop": (5, 2, 31, 17)},
    ]
    number = 0
    for pix_fmt, dtype in product(PIX_FMTS, ("uint8", "float16", "float32", "bfloat16")):
        for shape in shapes:
            number += 1
            colour = "gray" if number % 7 == 3 else "rgb"
            normal = NORMALISED if dtype != "uint8" and number % 2 and colour == "rgb" else {}
            format_ = TensorFormat(
                dtype=dtype,  # type: ignore[arg-type]
                layout=("nchw", "nhwc")[number % 2],  # type: ignore[arg-type]
                filter=[*ScaleFilter][number % 3],
                colour=colour,  # type: ignore[arg-type]
                **shape,
                **normal,
            )
            yield BatchCase(pix_fmt, (44, 26), COLOURS[number % len(COLOURS)], format_)
    for pix_fmt, location in product(("yuv420p", "yuv422p"), range(7)):
        colour_ = replace(COLOURS[location], chroma_location=location)
        yield BatchCase(pix_fmt, (44, 26), colour_, TensorFormat(crop=(location, 1, 31, 18 + location)))
        for size in ((20 + location, 9), (80, 30 + location), (19, 64)):
            yield BatchCase(pix_fmt, (44, 26), colour_, TensorFormat(crop=(2 * location, 2, 30, 22), size=size))


class TensorBench:
    """A device, its kernels, and pictures on the device."""

    def __init__(self, cuda: Cuda, kernels: TensorKernels) -> None:
        self.cuda = cuda
        self.stream = cuda.stream()
        self.memory = PicturePool(cuda)
        self.maker = CudaTensors(cuda, self.memory, kernels, MemoryBudget(None))
        self._held: list[int] = []

    def frames(self, case: BatchCase) -> list[Frame]:
        """Return a case's frames on the device."""
        found = []
        for frame in case.frames():
            picture = frame.to_video_frame()
            address = self.put(surface_of_picture(picture))
            on_device = picture_at(address, picture, None)
            found.append(replace(frame, _picture=on_device))
        return found

    def check(self, case: BatchCase) -> None:
        """Compare the device's tensor with the host's tensor."""
        found: Any = self.maker.make(self.frames(case), case.format)
        wanted = bits_of(to_tensor(case.frames(), case.format))
        assert found.shape == wanted.shape
        bits = self.take(found.address, wanted.nbytes).view(wanted.dtype).reshape(wanted.shape)
        different = np.count_nonzero(bits != wanted)
        assert not different, f"{case}: {different} of {wanted.size} differ"
        self.free()

    def put(self, values: NDArray[Any]) -> int:
        """Return the address of a copy on the device."""
        address = self.cuda.allocate(values.nbytes)
        self._held.append(address)
        host = self.cuda.pin(values.nbytes)
        ctypes.memmove(host, np.ascontiguousarray(values).ctypes.data, values.nbytes)
        with self.cuda.entered:
            self.cuda.copy_to_device(address, host, values.nbytes, self.stream)
            self.stream.wait()
        self.cuda.unpin(host)
        return address

    def take(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return a copy of the device's memory."""
        host = self.cuda.pin(size_bytes)
        with self.cuda.entered:
            self.cuda.copy_to_host(host, address, size_bytes, self.stream)
            self.stream.wait()
        found = np.frombuffer(ctypes.string_at(host, size_bytes), np.uint8)
        self.cuda.unpin(host)
        return found

    def free(self) -> None:
        """Free the pictures."""
        while self._held:
            self.cuda.free(self._held.pop())

    def close(self) -> None:
        """Give everything back."""
        self.free()
        self.maker.close()
        self.stream.close()
        while self.memory.drop_oldest():
            pass


def bits_of(tensor: Any) -> NDArray[Any]:
    """Return the bits of a host tensor's numbers, as whole numbers."""
    array = tensor.bits if isinstance(tensor, HostBfloat16) else tensor
    whole: NDArray[Any] = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return whole


class CudaArray:
    """Device memory of another library, with the CUDA array interface."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str, stream: int | None = None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": None,
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
            "stream": stream,
        }


class CudaDlpack:
    """Device memory of another library, with DLPack; ``asked`` has the streams that consumers named."""

    def __init__(self, array: Any, device: tuple[int, int] | None = None) -> None:
        self._array = array
        self._device = device
        self.asked: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device."""
        found: tuple[int, int] = self._device or self._array.__dlpack_device__()
        return found

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        """Return a capsule."""
        self.asked.append(stream)
        capsule: object = self._array.__dlpack__(stream=stream, max_version=max_version)
        return capsule
