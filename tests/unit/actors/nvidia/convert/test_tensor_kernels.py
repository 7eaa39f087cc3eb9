"""Tensors by kernels equal those of the host bit for bit, in new memory and in the caller's memory."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from codecfleet import UsageError
from codecfleet.actors.media.values import Colour
from codecfleet.actors.nvidia.convert.tensor_kernel import CompiledTensors
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.surfaces.frames_dlpack import BFLOAT, DeviceArray, described
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.actors.tensors.host_tensor import to_tensor
from codecfleet.actors.tensors.tensor_format import TensorFormat
from codecfleet.errors import DeviceMemory
from codecfleet.testing.nvidia.host_kernels import ReferenceTensors

from .....device.tensor_batch_cases import BatchCase, CudaArray, CudaDlpack, TensorBench, bits_of, cases
from ..kernel_machine import KernelMachine

CASE = BatchCase("yuv420p", (32, 24), Colour(), TensorFormat(size=(10, 6)))


@pytest.fixture(params=["kernels", "reference"])
def bench(machine: KernelMachine, request: pytest.FixtureRequest) -> Iterator[TensorBench]:
    """Provide the device with its kernels, or the host's arithmetic; at the end no memory and no stream may be left."""
    cuda = Cuda(machine)
    reference = ReferenceTensors(lambda stream, work: machine.put(stream.number, work))
    bench = TensorBench(cuda, CompiledTensors(machine.core, cuda) if request.param == "kernels" else reference)
    yield bench
    bench.close()
    assert machine.memory == {}
    assert len(machine.streams) <= 1  # the pool's own


def test_kernels_are_the_host(bench: TensorBench) -> None:
    """The bits are the same for every format, type, layout and colour, for crops, and scaled up and down."""
    for case in cases():
        bench.check(case)


@pytest.mark.parametrize(
    "case",
    [
        BatchCase("yuv420p", (640, 360), Colour(), TensorFormat(size=(224, 224), dtype="float32", mean=0.5, std=0.25)),
        BatchCase("yuv420p10le", (320, 180), Colour(), TensorFormat(size=(640, 360), filter=ScaleFilter.LANCZOS)),
        BatchCase("yuv444p", (640, 360), Colour(), TensorFormat(crop=(11, 7, 600, 301), size=(96, 400))),
    ],
    ids=lambda case: case.pix_fmt,
)
def test_larger_pictures_are_the_hosts_too(bench: TensorBench, case: BatchCase) -> None:
    """The bits are the same for pictures that the host processes in many strips and blocks."""
    bench.check(case)


def test_pictures_of_one_kind_share_launches(machine: KernelMachine, bench: TensorBench) -> None:
    """A launch makes up to 16 pictures; pictures of other kinds between them take launches of their own."""
    bench.check(replace(CASE, pictures=35))
    assert machine.calls.get("cuLaunchKernel", 3) == 3
    kinds = [CASE, BatchCase("yuv444p10le", (44, 26), Colour(matrix=1), CASE.format, 3), CASE]
    found = bench.maker.make([frame for kind in kinds for frame in bench.frames(kind)], CASE.format)
    wanted = bits_of(to_tensor([frame for kind in kinds for frame in kind.frames()], CASE.format))
    assert isinstance(found, DeviceArray)
    assert np.array_equal(bench.take(found.address, wanted.nbytes).reshape(wanted.shape), wanted)
    assert machine.calls.get("cuLaunchKernel", 6) == 6


@pytest.mark.parametrize("way", ["array", "dlpack"])
def test_the_callers_memory_is_filled(bench: TensorBench, way: str) -> None:
    """The caller's memory gets the tensor and is returned; the stream of its producer is waited for."""
    wanted = bits_of(to_tensor(CASE.frames(), CASE.format))
    address = bench.put(np.zeros_like(wanted))

    class Owner:
        device = 0

        def used_by(self, stream: int | None) -> None:
            """Do nothing."""

    out = CudaArray(address, wanted.shape, "|u1", stream=bench.stream.number)
    dlpack = CudaDlpack(DeviceArray(address, wanted.shape, 1, Owner()))
    given = out if way == "array" else dlpack
    assert bench.maker.make(bench.frames(CASE), CASE.format, given) is given
    assert np.array_equal(bench.take(address, wanted.nbytes).reshape(wanted.shape), wanted)
    if way == "dlpack":
        (stream,) = dlpack.asked
        assert stream not in (None, -1, bench.stream.number)


@pytest.mark.parametrize(
    ("shape", "typestr", "words"),
    [((2, 3, 6, 11), "|u1", "has the shape"), ((2, 3, 6, 10), "<f4", "does not hold uint8")],
)
def test_memory_that_does_not_fit_is_refused(
    bench: TensorBench, shape: tuple[int, ...], typestr: str, words: str
) -> None:
    """Memory is refused if it has another shape or type, or is on another device or the host."""
    frames = bench.frames(CASE)
    with pytest.raises(UsageError, match=words):
        bench.maker.make(frames, CASE.format, CudaArray(4096, shape, typestr))
    with pytest.raises(UsageError, match="not on the CUDA device 0"):
        bench.maker.make(frames, CASE.format, np.zeros((2, 3, 6, 10), np.uint8))
    with pytest.raises(UsageError, match="on the host and on a device"):
        bench.maker.make([*frames, *CASE.frames()], CASE.format)


def test_bfloat16_goes_out_by_dlpack_only(bench: TensorBench) -> None:
    """DLPack has a type code for bfloat16; the CUDA array interface has none."""
    case = BatchCase("yuv420p", (32, 24), Colour(), TensorFormat(size=(10, 6), dtype="bfloat16"))
    tensor = bench.maker.make(bench.frames(case), case.format)
    assert isinstance(tensor, DeviceArray)
    found, _ = described(tensor.__dlpack__(max_version=(1, 0)))
    assert (found.code, found.bits, found.device_type, found.ndim) == (BFLOAT, 16, 2, 4)
    assert not hasattr(tensor, "__cuda_array_interface__")


def test_weights_of_few_formats_are_kept(bench: TensorBench) -> None:
    """Random crops, as in training, do not fill the memory with weights."""
    frames = bench.frames(CASE)
    for left in range(20):
        bench.maker.make(frames, TensorFormat(crop=(left, 0, 9, 9), size=(4, 4)))
    assert len(bench.maker._prepared) == 16


def test_a_refusal_leaves_nothing_behind(machine: KernelMachine, bench: TensorBench) -> None:
    """After a refusal, neither weights nor the tensor stay in memory."""
    frames = bench.frames(CASE)
    machine.faults["cuMemcpyHtoDAsync"] = 2
    with pytest.raises(DeviceMemory):
        bench.maker.make(frames, CASE.format)
    del machine.faults["cuMemcpyHtoDAsync"]
    bench.maker.make(frames, CASE.format)
