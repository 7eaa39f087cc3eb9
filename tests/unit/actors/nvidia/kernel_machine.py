"""CUDA kernels compiled by the system's C++ compiler and run thread by thread, on a device in host memory.

Such runs show what a kernel computes, and that its source, arguments and launches fit together. They do not show errors
of NVRTC or of a GPU, or of threads that run at the same time; ``tests/device`` tests those.
"""

import ctypes
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from codecfleet.testing.nvidia.fake_cuda import FakeCudaCore, FakeCudaDriver

_SHIM = """
#include <type_traits>
#include <utility>
struct Index { int x, y, z; };
static thread_local Index blockIdx, blockDim, threadIdx;
#define __global__ static
#define __device__ static
#define __grid_constant__
"""
_RUN = """
template <typename... Kinds, std::size_t... Places>
static void call(void (*kernel)(Kinds...), void **arguments, std::index_sequence<Places...>)
{
    kernel(*static_cast<std::remove_cv_t<Kinds> *>(arguments[Places])...);
}

template <typename... Kinds>
static void all(void (*kernel)(Kinds...), int columns, int rows, int layers, int wide, int high, void **arguments)
{
    blockDim = {wide, high, 1};
    for (blockIdx.z = 0; blockIdx.z < layers; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < rows; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < columns; ++blockIdx.x)
                for (threadIdx.y = 0; threadIdx.y < high; ++threadIdx.y)
                    for (threadIdx.x = 0; threadIdx.x < wide; ++threadIdx.x)
                        call(kernel, arguments, std::index_sequence_for<Kinds...>());
}

extern "C" void run(int number, int columns, int rows, int layers, int wide, int high, void **arguments)
{
    switch (number) {
CASES
    }
}
"""
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


class HostCudaCore:
    """The part of ``cuda.core`` that compiles kernels; a kernel's handle is its number. Skips without a compiler."""

    Device = FakeCudaCore.Device
    ProgramOptions = FakeCudaCore.ProgramOptions

    def __init__(self, flags: tuple[str, ...] = _FLAGS) -> None:
        self._flags = flags
        self.library: Any = None
        self._names: tuple[str, ...] = ()
        self._source = self._built = ""

    def Program(self, source: str, code_type: str, options: object) -> "HostCudaCore":  # noqa: N802 - as there
        """Return the program, which is this object."""
        assert (code_type, options) == ("c++", self.ProgramOptions("c++17", "sm_90"))
        self._source = source
        return self

    def compile(self, target: str, name_expressions: tuple[str, ...]) -> "HostCudaCore":
        """Compile and load the kernels; return the code, which is this object."""
        assert target == "cubin"
        if (self._built, self._names) == (self._source, name_expressions):
            return self
        if (compiler := shutil.which("g++")) is None:
            pytest.skip("there is no g++ to compile kernels with")
        self._names = name_expressions
        cases = "".join(
            f"        case {number}: return all(&{name}, columns, rows, layers, wide, high, arguments);\n"
            for number, name in enumerate(name_expressions)
        )
        with TemporaryDirectory() as folder:
            source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
            source.write_text(_SHIM + self._source + _RUN.replace("CASES", cases))
            subprocess.run([compiler, *self._flags, "-o", str(library), str(source)], check=True)
            self.library = ctypes.CDLL(str(library))
        self._built = self._source
        return self

    def get_kernel(self, name: str) -> FakeCudaCore.Kernel:
        """Return a kernel."""
        return FakeCudaCore.Kernel(self._names.index(name))


@dataclass
class KernelMachine(FakeCudaDriver):
    """``cuda.bindings.driver`` that runs the kernels of a ``HostCudaCore``.

    A launch first runs all earlier work of its stream, so its arguments are read at the same point as on a GPU.
    """

    core: HostCudaCore = field(default_factory=HostCudaCore)

    def cuLaunchKernel(self, function: int, *shape_and_more: int) -> tuple[Any, ...]:  # noqa: N802 - as there
        """Run a kernel, one thread after another."""
        columns, rows, layers, wide, high, one, shared_bytes, stream, arguments, extra = shape_and_more
        assert (one, shared_bytes, extra) == (1, 0, 0)
        failed, *_ = self.cuStreamSynchronize(stream)
        if failed:
            return (failed,)
        answer = self._answer("cuLaunchKernel")
        if not answer[0]:
            self.core.library.run(function, columns, rows, layers, wide, high, ctypes.c_void_p(arguments))
        return answer
