"""Calls vGPU functions for which the Python binding allocates wrong buffers.

Four functions of nvidia-ml-py 13.615 corrupt memory: ``GetVmID`` gets 80 bytes although 128 are claimed, ``GetFbUsage``
gets four bytes for an ``unsigned long long``, and the two ``GetMetadata`` functions get a structure of fixed size. A
fifth function, ``GetAccountingPids``, fails if there are no processes. This module calls the five functions through the
binding's loader. A fake library, which has no loader, is used unchanged.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from ..nvml.calls import NvmlLike, read_text

INSUFFICIENT_SIZE = 7
VM_ID_BYTES = 128  # NVML's limit for an id with the terminator; this module's buffer is twice as large


def with_safe_vgpu_calls(nvml: NvmlLike) -> NvmlLike:
    """Wrap the NVML library: safe versions replace the vGPU functions for which the binding's buffers are wrong."""
    find = getattr(nvml, "_nvmlGetFunctionPointer", None)
    return nvml if find is None else _SafeVgpuCalls(nvml, find)


class _SafeVgpuCalls:
    def __init__(self, nvml: NvmlLike, find: Callable[[str], Callable[..., int]]) -> None:
        self._nvml = nvml
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)

    def nvmlVgpuInstanceGetVmID(self, instance: int) -> tuple[str, int]:
        buffer, found = ctypes.create_string_buffer(2 * VM_ID_BYTES), ctypes.c_uint(0)
        call = self._find("nvmlVgpuInstanceGetVmID")
        self._check(call(ctypes.c_uint(instance), buffer, ctypes.c_uint(VM_ID_BYTES), ctypes.byref(found)))
        return read_text(buffer.value), found.value

    def nvmlVgpuInstanceGetFbUsage(self, instance: int) -> int:
        used = ctypes.c_ulonglong(0)
        self._check(self._find("nvmlVgpuInstanceGetFbUsage")(ctypes.c_uint(instance), ctypes.byref(used)))
        return used.value

    def nvmlVgpuInstanceGetMetadata(self, instance: int) -> Any:
        return self._sized("nvmlVgpuInstanceGetMetadata", instance, ctypes.c_uint, "c_nvmlVgpuMetadata_t")

    def nvmlDeviceGetVgpuMetadata(self, handle: object) -> Any:
        return self._sized("nvmlDeviceGetVgpuMetadata", handle, lambda same: same, "c_nvmlVgpuPgpuMetadata_t")

    def nvmlVgpuInstanceGetAccountingPids(self, instance: int) -> tuple[ctypes.c_uint, Any]:
        call, wanted = self._find("nvmlVgpuInstanceGetAccountingPids"), ctypes.c_uint(0)
        code = call(ctypes.c_uint(instance), ctypes.byref(wanted), None)
        found = (ctypes.c_uint * wanted.value)()
        if code != INSUFFICIENT_SIZE:
            self._check(code)
            return ctypes.c_uint(0), found
        self._check(call(ctypes.c_uint(instance), ctypes.byref(wanted), found))
        return wanted, found

    def _sized(self, function: str, subject: Any, to_c: Callable[[Any], object], structure_name: str) -> Any:
        call, target = self._find(function), to_c(subject)
        structure: type[ctypes.Structure] = getattr(self._nvml, structure_name)
        wanted = ctypes.c_uint(0)
        code = call(target, None, ctypes.byref(wanted))
        if code != INSUFFICIENT_SIZE:
            self._check(code)
        # ``from_buffer`` makes the structure a view of the larger memory, which stays allocated as long as the
        # structure.
        memory = bytearray(max(wanted.value, ctypes.sizeof(structure)))
        room = ctypes.c_uint(len(memory))
        view = structure.from_buffer(memory)
        self._check(call(target, ctypes.byref(view), ctypes.byref(room)))
        return view

    def _check(self, code: int) -> None:
        if code:
            raise self._nvml.NVMLError(code)
