"""On a real GPU, kernels fill input tensors from surfaces with the host's bytes. No DLA is needed."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.tensors import DataFormat, DataType
from codecfleet.actors.dla.inference.device_input import ExactScaler, FillKernels, TensorFiller
from codecfleet.actors.dla.inference.pictures import input_memory
from codecfleet.actors.media.values import Colour
from codecfleet.actors.nvidia.convert.converting import Converter
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.surfaces.device_frame import state_colour

from .tensor_cases import CASES, COLOURS, TensorCase, picture_at, surface_of_picture

GUARD_BYTES = 256
GUARD = 0x5A
SMALL = (24, 16)
REAL = (
    (TensorCase("yuv420p", (4, 3, 640, 640), DataType.HALF, DataFormat.NCxHWx, "rgb"), (1920, 1080)),
    (TensorCase("yuv420p10le", (2, 3, 544, 960), DataType.INT8, DataFormat.NCxHWx, "bgr"), (3840, 2160)),
    (TensorCase("yuv420p", (1, 3, 224, 224), DataType.FLOAT, DataFormat.NCHW, "rgb"), (720, 576)),
    (TensorCase("yuv422p10le", (1, 4, 300, 301), DataType.HALF, DataFormat.NCxHWx, "bgr"), (1280, 720)),
    (TensorCase("yuv444p12le", (1, 3, 384, 512), DataType.INT16, DataFormat.NHWC, "rgb"), (854, 480)),
    (TensorCase("yuv444p", (1, 1, 720, 1280), DataType.UINT8, DataFormat.NCHW, "rgb"), (1280, 720)),
)
"""The sizes (width, height) of network inputs and of films."""


class Bench:
    """A GPU with the kernels that scale and the kernels that fill."""

    def __init__(self, cuda: Cuda, converter: Converter) -> None:
        self._cuda = cuda
        self._converter = converter
        self._kernels = FillKernels(cuda)
        self._stream = cuda.stream()

    def check(self, case: TensorCase, pictures: Sequence[VideoFrame], colour: Colour | None) -> None:
        """Compare the device's tensor with the host's tensor, byte by byte."""
        scaler = ExactScaler(case.descriptor, colour)
        wanted = input_memory(case.descriptor, [scaler.scaled(each) for each in pictures], case.rule)
        found = self.filled(case, pictures, colour)
        assert wanted.any()
        assert np.array_equal(found, wanted), f"{np.count_nonzero(found != wanted)} of {wanted.size} bytes differ"

    def filled(self, case: TensorCase, pictures: Sequence[VideoFrame], colour: Colour | None) -> NDArray[np.uint8]:
        """Return a tensor's memory after the device filled it; check that nothing beside the tensor was written."""
        memory = np.zeros(case.descriptor.size_bytes + 2 * GUARD_BYTES, dtype=np.uint8)
        memory[:GUARD_BYTES] = memory[-GUARD_BYTES:] = GUARD
        filler = TensorFiller(
            self._cuda,
            lambda: self._converter,
            self._kernels,
            descriptor=case.descriptor,
            rule=case.rule,
            colour=colour,
        )
        addresses = [self._put(memory)]
        for place, picture in enumerate(pictures):
            addresses.append(self._put(surface_of_picture(picture)))
            on_device = picture_at(addresses[-1], picture, None)
            if colour is None:
                on_device.colour = Colour(range=int(picture.color_range), matrix=int(picture.colorspace))
            filler.begin(filler.prepare(on_device), addresses[0] + GUARD_BYTES, place, int(self._stream.handle))
        self._take(addresses[0], memory)
        filler.close()
        for address in addresses:
            self._cuda.free(address)
        assert (memory[:GUARD_BYTES] == GUARD).all(), "written before its place"
        assert (memory[-GUARD_BYTES:] == GUARD).all(), "written behind its place"
        return memory[GUARD_BYTES:-GUARD_BYTES]

    def close(self) -> None:
        """Give the stream back."""
        self._stream.close()

    def _put(self, values: NDArray[np.uint8]) -> int:
        """Return the address of a copy on the device."""
        address = self._cuda.allocate(values.nbytes)
        with self._cuda.entered:
            self._cuda.copy_to_device(address, values.ctypes.data, values.nbytes, self._stream)
            self._stream.wait()
        return address

    def _take(self, address: int, values: NDArray[np.uint8]) -> None:
        with self._cuda.entered:
            self._cuda.copy_to_host(values.ctypes.data, address, values.nbytes, self._stream)
            self._stream.wait()


@pytest.fixture(scope="module")
def bench(cuda: Cuda) -> Iterator[Bench]:
    """Provide the GPU with its kernels; a GPU machine must have NVRTC."""
    converter, reason = compiled(Converter, cuda)
    assert converter is not None, reason
    bench = Bench(cuda, converter)
    yield bench
    bench.close()


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_gpu_fills_what_the_host_packs(bench: Bench, case: TensorCase, colour: Colour) -> None:
    """Tensors are equal for every layout, element size, number of channels, range and matrix, and for batches."""
    bench.check(case, case.pictures(SMALL), colour)


@pytest.mark.parametrize("data_type", [each for each in DataType if each is not DataType.UNKNOWN])
@pytest.mark.parametrize("data_format", [DataFormat.NCHW, DataFormat.NHWC, DataFormat.NCxHWx])
def test_every_type_in_every_layout(bench: Bench, data_type: DataType, data_format: DataFormat) -> None:
    """Two pictures of 10 bits, each of one colour, fill tensors of every type and layout."""
    for order in ("rgb", "bgr"):
        case = TensorCase("yuv420p10le", (2, 3, 21, 34), data_type, data_format, order)
        bench.check(case, case.pictures((66, 38)), COLOURS[1])


@pytest.mark.parametrize(("case", "size"), REAL, ids=str)
def test_inputs_of_real_networks(bench: Bench, case: TensorCase, size: tuple[int, int]) -> None:
    """Large inputs take many blocks of threads, the last ones not full."""
    bench.check(case, case.pictures(size), COLOURS[0])


def test_colours_of_each_picture(bench: Bench) -> None:
    """If no colours are given, each picture's own colours are used."""
    case = TensorCase("yuv420p", (3, 3, 32, 48), DataType.HALF, DataFormat.NCxHWx, "rgb")
    pictures = case.pictures((128, 72))
    for picture, colour in zip(pictures, COLOURS, strict=True):
        state_colour(picture, Colour(range=colour.range, matrix=colour.matrix))
    bench.check(case, pictures, None)
