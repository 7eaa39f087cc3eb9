"""vGPU calls that need other buffers than the Python binding gives them.

nvidia-ml-py 13.615 calls five vGPU functions with memory that does not fit:

- ``nvmlVgpuInstanceGetVmID`` says that its buffer of 80 bytes has 128: a long id would be written past its end;
- ``nvmlVgpuInstanceGetFbUsage`` gives four bytes where NVML writes an ``unsigned long long``;
- ``nvmlVgpuInstanceGetMetadata`` and ``nvmlDeviceGetVgpuMetadata`` ask how many bytes are needed, and then pass a
  structure of fixed size whatever the answer was;
- ``nvmlVgpuInstanceGetAccountingPids`` fails in Python where accounting remembers no process at all.

Such a fault corrupts the probing process, so the binding's functions cannot be used as they are, and a larger buffer
cannot be handed to them either: they make their own. What they are built on, the loader that finds a function in
libnvidia-ml, is sound, so the calls are made here through it. A library that has no such loader has no C buffers: the
fakes, whose own functions are then used.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from ..nvml.calls import NvmlLike, read_text

INSUFFICIENT_SIZE = 7
VM_ID_BYTES = 128
"""What NVML may write, terminator included; twice as much is given, in case its manual is as wrong as its binding."""


class VgpuNvml:
    """An NVML library whose vGPU calls are safe; everything else is the library's own.

    Args:
        nvml: the ``pynvml`` module, or what answers like it.
    """

    def __init__(self, nvml: NvmlLike) -> None:
        self._nvml = nvml
        self._find: Callable[[str], Callable[..., int]] | None = getattr(nvml, "_nvmlGetFunctionPointer", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)

    def nvmlVgpuInstanceGetVmID(self, instance: int) -> tuple[str, int]:  # noqa: N802 - NVML's own name
        """Return the id of the virtual machine, and of which kind it is (0 domain id, 1 UUID)."""
        if self._find is None:
            value, kind = self._nvml.nvmlVgpuInstanceGetVmID(instance)
            return read_text(value), int(kind)
        buffer, found = ctypes.create_string_buffer(2 * VM_ID_BYTES), ctypes.c_uint(0)
        call = self._find("nvmlVgpuInstanceGetVmID")
        self._check(call(ctypes.c_uint(instance), buffer, ctypes.c_uint(VM_ID_BYTES), ctypes.byref(found)))
        return read_text(buffer.value), found.value

    def nvmlVgpuInstanceGetFbUsage(self, instance: int) -> int:  # noqa: N802 - NVML's own name
        """Return the frame buffer that a vGPU uses, in bytes."""
        if self._find is None:
            return int(self._nvml.nvmlVgpuInstanceGetFbUsage(instance))
        used = ctypes.c_ulonglong(0)
        self._check(self._find("nvmlVgpuInstanceGetFbUsage")(ctypes.c_uint(instance), ctypes.byref(used)))
        return used.value

    def nvmlVgpuInstanceGetMetadata(self, instance: int) -> Any:  # noqa: N802 - NVML's own name and structure
        """Return the metadata structure of a vGPU, with all the room that the driver asked for behind it."""
        if self._find is None:
            return self._nvml.nvmlVgpuInstanceGetMetadata(instance)
        call = self._find("nvmlVgpuInstanceGetMetadata")
        return self._sized(call, ctypes.c_uint(instance), self._nvml.c_nvmlVgpuMetadata_t)

    def nvmlDeviceGetVgpuMetadata(self, handle: object) -> Any:  # noqa: N802 - NVML's own name and structure
        """Return the metadata structure of a GPU, with all the room that the driver asked for behind it."""
        if self._find is None:
            return self._nvml.nvmlDeviceGetVgpuMetadata(handle)
        return self._sized(self._find("nvmlDeviceGetVgpuMetadata"), handle, self._nvml.c_nvmlVgpuPgpuMetadata_t)

    def nvmlVgpuInstanceGetAccountingPids(self, instance: int) -> tuple[int, ...]:  # noqa: N802 - NVML's own name
        """Return the processes that accounting remembers, none included."""
        if self._find is None:
            count, pids = self._nvml.nvmlVgpuInstanceGetAccountingPids(instance)
            return tuple(int(pid) for pid in pids[: int(getattr(count, "value", count))])
        call, wanted = self._find("nvmlVgpuInstanceGetAccountingPids"), ctypes.c_uint(0)
        code = call(ctypes.c_uint(instance), ctypes.byref(wanted), None)
        if code != INSUFFICIENT_SIZE:
            self._check(code)
            return ()
        found = (ctypes.c_uint * wanted.value)()
        self._check(call(ctypes.c_uint(instance), ctypes.byref(wanted), found))
        return tuple(found[: wanted.value])

    def _sized(self, call: Callable[..., int], subject: object, structure: type[ctypes.Structure]) -> ctypes.Structure:
        wanted = ctypes.c_uint(0)
        code = call(subject, None, ctypes.byref(wanted))
        if code != INSUFFICIENT_SIZE:
            self._check(code)
        # from_buffer: the structure is a view of the larger memory, and keeps it alive.
        memory = bytearray(max(wanted.value, ctypes.sizeof(structure)))
        room = ctypes.c_uint(len(memory))
        view = structure.from_buffer(memory)
        self._check(call(subject, ctypes.byref(view), ctypes.byref(room)))
        return view

    def _check(self, code: int) -> None:
        if code:
            raise self._nvml.NVMLError(code)
