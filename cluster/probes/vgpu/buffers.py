"""vGPU calls that need other buffers than the Python binding gives them.

nvidia-ml-py 13.615 calls five vGPU functions with memory that does not fit:

- ``nvmlVgpuInstanceGetVmID`` says that its buffer of 80 bytes has 128: a long id would be written past its end;
- ``nvmlVgpuInstanceGetFbUsage`` gives four bytes where NVML writes an ``unsigned long long``;
- ``nvmlVgpuInstanceGetMetadata`` and ``nvmlDeviceGetVgpuMetadata`` ask how many bytes are needed, and then pass a
  structure of fixed size whatever the answer was;
- ``nvmlVgpuInstanceGetAccountingPids`` fails in Python where accounting remembers no process at all.

Such a fault corrupts the probing process, so the binding's functions cannot be used as they are, nor with a larger
buffer: they make their own. The loader beneath them, which finds a function in libnvidia-ml, is sound: the calls are
made here through it. A library without such a loader, a fake, has no C buffers: its own functions are used.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from ..nvml.calls import NvmlLike, read_text
from ..report.absence import Absence, Maybe, Unavailable

INSUFFICIENT_SIZE = 7
_NO_MAXIMUM = Unavailable(Absence.NOT_FOUND, "the driver did not say how many processes it remembers at most")
VM_ID_BYTES = 128
"""What NVML may write, terminator included; twice as much is given, in case its manual is as wrong as its binding."""


class VgpuNvml:
    """An NVML library (``pynvml``, or a fake) whose vGPU calls are safe; everything else is the library's own."""

    def __init__(self, nvml: NvmlLike) -> None:
        self._nvml = nvml
        self._find: Callable[[str], Callable[..., int]] | None = getattr(nvml, "_nvmlGetFunctionPointer", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)

    def nvmlVgpuInstanceGetVmID(self, instance: int) -> tuple[str, int]:
        """Return the id of the virtual machine, and of which kind it is (0 domain id, 1 UUID)."""
        if self._find is None:
            value, kind = self._nvml.nvmlVgpuInstanceGetVmID(instance)
            return read_text(value), int(kind)
        buffer, found = ctypes.create_string_buffer(2 * VM_ID_BYTES), ctypes.c_uint(0)
        call = self._find("nvmlVgpuInstanceGetVmID")
        self._check(call(ctypes.c_uint(instance), buffer, ctypes.c_uint(VM_ID_BYTES), ctypes.byref(found)))
        return read_text(buffer.value), found.value

    def nvmlVgpuInstanceGetFbUsage(self, instance: int) -> int:
        """Return the frame buffer that a vGPU uses, in bytes."""
        if self._find is None:
            return int(self._nvml.nvmlVgpuInstanceGetFbUsage(instance))
        used = ctypes.c_ulonglong(0)
        self._check(self._find("nvmlVgpuInstanceGetFbUsage")(ctypes.c_uint(instance), ctypes.byref(used)))
        return used.value

    def nvmlVgpuInstanceGetMetadata(self, instance: int) -> Any:
        """Return the metadata structure of a vGPU, with all the room that the driver asked for behind it."""
        return self._sized("nvmlVgpuInstanceGetMetadata", instance, ctypes.c_uint, "c_nvmlVgpuMetadata_t")

    def nvmlDeviceGetVgpuMetadata(self, handle: object) -> Any:
        """Return the metadata structure of a GPU, with all the room that the driver asked for behind it."""
        return self._sized("nvmlDeviceGetVgpuMetadata", handle, lambda same: same, "c_nvmlVgpuPgpuMetadata_t")

    def nvmlVgpuInstanceGetAccountingPids(self, instance: int) -> tuple[Maybe[int], tuple[int, ...]]:
        """Return how many processes accounting remembers at most, and those that it does; there may be none.

        Asked without room, NVML says how many there may be; of an empty list it may say nothing but that.
        """
        if self._find is None:
            count, pids = self._nvml.nvmlVgpuInstanceGetAccountingPids(instance)
            return len(pids) or _NO_MAXIMUM, tuple(int(pid) for pid in pids[: int(getattr(count, "value", count))])
        call, wanted = self._find("nvmlVgpuInstanceGetAccountingPids"), ctypes.c_uint(0)
        code = call(ctypes.c_uint(instance), ctypes.byref(wanted), None)
        if code != INSUFFICIENT_SIZE:
            self._check(code)
            return wanted.value or _NO_MAXIMUM, ()
        most = wanted.value
        found = (ctypes.c_uint * wanted.value)()
        self._check(call(ctypes.c_uint(instance), ctypes.byref(wanted), found))
        return most, tuple(found[: wanted.value])

    def _sized(self, function: str, subject: Any, to_c: Callable[[Any], object], structure_name: str) -> Any:
        if self._find is None:
            return getattr(self._nvml, function)(subject)
        call, target = self._find(function), to_c(subject)
        structure: type[ctypes.Structure] = getattr(self._nvml, structure_name)
        wanted = ctypes.c_uint(0)
        code = call(target, None, ctypes.byref(wanted))
        if code != INSUFFICIENT_SIZE:
            self._check(code)
        # from_buffer: the structure is a view of the larger memory, and keeps it alive.
        memory = bytearray(max(wanted.value, ctypes.sizeof(structure)))
        room = ctypes.c_uint(len(memory))
        view = structure.from_buffer(memory)
        self._check(call(target, ctypes.byref(view), ctypes.byref(room)))
        return view

    def _check(self, code: int) -> None:
        if code:
            raise self._nvml.NVMLError(code)
