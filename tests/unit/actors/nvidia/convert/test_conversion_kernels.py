"""Conversion by kernels: the same bits as the reference, and all memory is counted and returned."""

from collections.abc import Iterator

import numpy as np
import pytest

from codecfleet.actors.nvidia.convert.converting import Converter, SurfaceConversion, SurfaceConverter
from codecfleet.actors.nvidia.convert.device_pictures import CudaConversion, PicturePool
from codecfleet.actors.nvidia.cuda.context import Cuda, Stream
from codecfleet.actors.nvidia.cuda.kernels import compiled
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.actors.surfaces.conversion import Conversion
from codecfleet.actors.surfaces.formats import SurfaceFormat
from codecfleet.actors.surfaces.host_scaling import converted
from codecfleet.actors.surfaces.scaling import ScaleFilter
from codecfleet.errors import DeviceMemory
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.host_kernels import ReferenceConverter
from tests.device.conversion_cases import FORMATS, Bench, conversions

from ..conversion_surfaces import random_surface
from ..kernel_machine import KernelMachine
from .test_converting import NV12, P016

ROOM_BYTES = 1 << 20


@pytest.fixture
def bench(machine: KernelMachine) -> Iterator[Bench]:
    """Provide the device, its converter, and memory for pictures; at the end no memory and no stream may be left."""
    cuda = Cuda(machine)
    bench = Bench(cuda, Converter(machine.core, cuda), ROOM_BYTES)
    yield bench
    bench.close()
    assert (machine.memory, machine.streams) == ({}, {})


@pytest.mark.parametrize("source", FORMATS)
def test_kernels_are_the_reference(bench: Bench, source: str) -> None:
    """The bytes are those of the reference between all formats, with every filter, up, down and by odd ratios."""
    for number, filter_ in enumerate(ScaleFilter):
        for seed, conversion in enumerate(conversions(FORMATS[source], filter_)):
            if (seed + number) % 3 == 0:  # the GPU tests run all of them
                bench.check(conversion, seed // 3)


@pytest.mark.parametrize("fault", ["cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuStreamCreate"])
def test_what_fails_leaves_no_memory_behind(machine: KernelMachine, fault: str) -> None:
    """A conversion that cannot be prepared has returned its memory when the error is raised."""
    cuda = Cuda(machine)
    converter = Converter(machine.core, cuda)
    conversion = Conversion(source=NV12, source_size=(32, 16), target=P016, target_size=(16, 16))
    machine.faults[fault] = 2
    with pytest.raises(DeviceMemory):
        converter.prepare(conversion, 0)
    assert machine.memory == {}


@pytest.mark.parametrize("target", [NV12, P016])
@pytest.mark.parametrize("is_reference", [False, True])
def test_results_may_go_elsewhere(machine: KernelMachine, target: SurfaceFormat, *, is_reference: bool) -> None:
    """One prepared conversion can write to a ring of targets; then its default target is not written."""
    cuda = Cuda(machine)
    stream = cuda.stream()
    conversion = Conversion(source=NV12, source_size=(32, 16), target=target, target_size=(32, 16))
    surface = random_surface(conversion, 1)
    targets = np.zeros((2, conversion.target_bytes), dtype=np.uint8)
    source = cuda.allocate(surface.size)
    first, second = cuda.allocate(targets[0].size), cuda.allocate(targets[1].size)
    memory = {address: np.frombuffer(machine.memory[address], dtype=np.uint8) for address in (source, first, second)}
    memory[source][:], memory[first][:] = surface, 0
    reference = ReferenceConverter(lambda stream, work: machine.put(stream.number, work))
    converting = (reference if is_reference else Converter(machine.core, cuda)).prepare(conversion, first)
    converting.begin(source, stream, second)
    stream.wait()
    assert not memory[first].any()
    assert np.array_equal(memory[second], converted(conversion, surface))
    converting.begin(source, stream)
    stream.wait()
    assert np.array_equal(memory[first], memory[second])
    converting.close()
    converting.close()


@pytest.mark.parametrize("good_streams", [0, 1])
def test_a_conversion_that_cannot_be_opened_leaves_nothing(machine: KernelMachine, good_streams: int) -> None:
    """Neither the converter's stream nor the memory of its kernels is left."""
    cuda, budget = Cuda(machine), MemoryBudget(None)
    conversion = Conversion(source=NV12, source_size=(32, 16), target=P016, target_size=(16, 16))
    converter = Converter(machine.core, cuda)
    memory = PicturePool(cuda)
    streams = dict(machine.streams)
    machine.faults["cuStreamCreate"] = 2
    machine.fails_after["cuStreamCreate"] = 1 + good_streams
    with pytest.raises(DeviceMemory):
        CudaConversion(cuda, memory, conversion, converter, "yuv420p10le", budget=budget)
    assert (machine.memory, machine.streams, budget.taken_bytes) == ({}, streams, 0)


def test_what_converting_takes_is_counted(machine: KernelMachine) -> None:
    """The conversion's weights and scratch memory count in the budget while it is open, and replace idle memory."""
    cuda = Cuda(machine)
    conversion = Conversion(source=NV12, source_size=(32, 16), target=P016, target_size=(16, 16))
    converter = Converter(machine.core, cuda)
    budget = MemoryBudget(conversion.scratch_bytes)
    idle = [budget.spend(1, lambda: 1)]

    def reclaim() -> bool:
        if not idle:
            return False
        budget.give_back(idle.pop())
        return True

    budget.reclaim_from(reclaim)
    memory = PicturePool(cuda)
    streams = dict(machine.streams)
    converting = CudaConversion(cuda, memory, conversion, converter, "yuv420p10le", budget=budget)
    assert budget.taken_bytes == conversion.scratch_bytes
    with pytest.raises(DeviceMemory, match="has no room for"):
        CudaConversion(cuda, memory, conversion, converter, "yuv420p10le", budget=budget)
    assert budget.taken_bytes == conversion.scratch_bytes
    converting.close()
    assert (machine.memory, machine.streams, budget.taken_bytes) == ({}, streams, 0)


class HalfRefused(SurfaceConversion, SurfaceConverter):
    """Begins to write to its target, and then fails."""

    def __init__(self, driver: FakeCudaDriver) -> None:
        self._driver = driver

    def prepare(self, conversion: Conversion, target_address: int) -> "HalfRefused":
        """Return this."""
        del conversion, target_address
        return self

    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        """Begin to copy, then fail."""
        assert target_address is not None
        self._driver.cuMemcpyDtoDAsync(target_address, surface_address, 16, stream.number)
        message = "there is no memory for the second kernel's code"
        raise DeviceMemory(message)

    def close(self) -> None:
        """Do nothing."""


def test_nothing_is_under_way_to_memory_that_goes_back() -> None:
    """A conversion that fails halfway waits for its started work, which writes to the released picture."""
    driver = FakeCudaDriver()
    cuda, converter = Cuda(driver), HalfRefused(driver)
    memory = PicturePool(cuda)
    conversion = Conversion(source=NV12, source_size=(32, 16), target=P016, target_size=(32, 16))
    converting = CudaConversion(cuda, memory, conversion, converter, "yuv420p10le", budget=MemoryBudget(None))
    with pytest.raises(DeviceMemory):
        converting.convert(memory.picture(NV12, (32, 16), "yuv420p", cuda.stream()))
    assert driver.calls["cuMemcpyDtoDAsync"] == 1
    assert not any(driver.streams.values())


def test_a_driver_that_fails_says_so(machine: KernelMachine) -> None:
    """A launch that the driver refuses is a ``DeviceError``."""
    cuda = Cuda(machine)
    conversion = Conversion(source=NV12, source_size=(32, 16), target=P016, target_size=(32, 16))
    converting = Converter(machine.core, cuda).prepare(conversion, 0)
    machine.faults["cuLaunchKernel"] = 2
    with pytest.raises(DeviceMemory):
        converting.begin(0, cuda.stream())


def test_without_a_compiler_the_reason_is_told() -> None:
    """If ``cuda.core`` cannot compile, there is no converter, and one line states the reason."""
    converter, reason = compiled(Converter, Cuda(FakeCudaDriver()))
    assert converter is None
    assert reason.startswith("kernels cannot be compiled here: ")
    assert "\n" not in reason
