"""Provides a device that runs the real kernels on the processor."""

import pytest

from codecfleet.actors.nvidia.convert.converting import Converter
from codecfleet.actors.nvidia.convert.packing import CompiledPacking
from codecfleet.actors.nvidia.convert.tensor_kernel import CompiledTensors
from codecfleet.actors.nvidia.cuda.context import Cuda

from ..kernel_machine import HostCudaCore, KernelMachine


@pytest.fixture(scope="session")
def core() -> HostCudaCore:
    """The kernels, compiled once."""
    core = HostCudaCore()
    for kind in (Converter, CompiledPacking, CompiledTensors):
        kind(core, Cuda(KernelMachine(core=core)))
    return core


@pytest.fixture
def machine(core: HostCudaCore) -> KernelMachine:
    """Return a device that runs the kernels on the processor."""
    return KernelMachine(core=core)
