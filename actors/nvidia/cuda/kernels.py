"""codecfleet's own kernels: compiled on first use, and queued in streams with their arguments."""

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from .context import Cuda, Stream

KernelsT = TypeVar("KernelsT")
BLOCK: Final = (64, 4)
"""The threads in a block of a kernel: columns and rows."""
_IMPORTING: Final = threading.Lock()
"""The lock for importing ``cuda.core``, which replaces its own ``__spec__`` during the import. Without the lock, a
second thread would get the unfinished module.
"""


class Kernels:
    """Kernels of CUDA C++ source by name, compiled by NVRTC. Raises errors of ``cuda.core`` if compiling fails."""

    def __init__(self, core: Any, cuda: Cuda, source: str, names: Iterable[str]) -> None:
        wanted = tuple(names)
        with cuda.entered:
            device = core.Device(cuda.ordinal)
            device.set_current()
            options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
            program = core.Program(source, code_type="c++", options=options)
            self._code = program.compile("cubin", name_expressions=wanted)
            self._handles = {name: self._code.get_kernel(name).handle for name in wanted}

    def __getitem__(self, name: str) -> Any:
        return self._handles[name]


def compiled(make: Callable[[Any, Cuda], KernelsT], cuda: Cuda) -> tuple[KernelsT | None, str]:
    """Return the kernels of ``make(cuda.core, cuda)`` and "", or None and the reason why they cannot be compiled."""
    try:
        with _IMPORTING:
            core = importlib.import_module("cuda.core")
        return make(core, cuda), ""
    except Exception as error:  # noqa: BLE001 - a missing compiler shows in many ways
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        return None, f"kernels cannot be compiled here: {reason}"


class Launch:
    """A kernel with its arguments (ctypes values), for at least ``size`` (columns, rows) threads. Used by one thread.

    It is launched through ``cuda.bindings``, which releases the GIL while the driver blocks. ``cuda.core`` keeps the
    GIL, which halves the speed of a dozen sessions.
    """

    def __init__(self, cuda: Cuda, kernel: Any, size: tuple[int, int], values: tuple[Any, ...]) -> None:
        self._cuda = cuda
        self._kernel = cuda.function(kernel)
        self._grid = (-(-size[0] // BLOCK[0]), -(-size[1] // BLOCK[1]))
        self._values = values
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

    def begin(self, stream: Stream, layers: int = 1) -> None:
        """Begin to run the kernel with its current arguments, on a grid ``layers`` deep.

        The kernel is done when the stream has finished.
        """
        self._cuda.launch(self._kernel, (*self._grid, layers), BLOCK, ctypes.addressof(self._pointers), stream)
