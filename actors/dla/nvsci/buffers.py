"""Memory that the processor and a DLA share, through libnvscibuf (CUDA for Tegra, section 5.1.3)."""

import ctypes
from dataclasses import dataclass
from typing import Final

from .library import Attribute, Loader, SciLibrary

ALIGNMENT_BYTES: Final = 512
"""The alignment that a DLA needs, as in NVIDIA's samples of standalone mode.

"CUDA for Tegra", section 5.4, only says that buffers "must adhere to DLA alignment constraints".
"""
_TYPES, _NEED_CPU_ACCESS, _REQUIRED_PERMISSION = 1, 2, 3
_RAW_SIZE, _RAW_ALIGNMENT = 0x10000, 0x10001
_DATA_TYPE, _DIMENSIONS, _SIZE_PER_DIMENSION, _ALIGNMENT_PER_DIMENSION = 0x30000, 0x30001, 0x30002, 0x30003
_BASE_ALIGNMENT, _TENSOR_SIZE = 0x30006, 0x30007
_TENSOR, _READ_WRITE, _INT8 = 3, 3, 2


@dataclass(frozen=True, slots=True)
class SciBuffer:
    """An NvSciBuf object, and the address of its memory for the processor."""

    object: int  # the NvSciBufObj
    address: int  # the processor's address of the memory
    size_bytes: int


class SciBuffers:
    """Allocates buffers. ``NvSciFailure`` if a call fails, ``OSError`` if libnvscibuf is missing."""

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self._library = SciLibrary("libnvscibuf.so.1", "NvSciBuf", load)

    def open(self) -> None:
        """Open the library's module; ``NvSciFailure`` if NvSci refuses."""
        self._library.open_module()

    def allocate(self, size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> SciBuffer:
        """Allocate bytes that the processor and a DLA may read and write, aligned for the DLA."""
        library = self._library
        asked = library.attribute_list(
            (
                (_TYPES, ctypes.c_uint32(_TENSOR)),
                (_DATA_TYPE, ctypes.c_uint32(_INT8)),
                (_DIMENSIONS, ctypes.c_uint32(1)),
                (_SIZE_PER_DIMENSION, (ctypes.c_uint64 * 1)(size_bytes)),
                (_ALIGNMENT_PER_DIMENSION, (ctypes.c_uint32 * 1)(1)),
                (_BASE_ALIGNMENT, ctypes.c_uint64(alignment)),
                (_REQUIRED_PERMISSION, ctypes.c_uint32(_READ_WRITE)),
                (_NEED_CPU_ACCESS, ctypes.c_bool(True)),  # noqa: FBT003 - ctypes has this signature
            )
        )
        reconciled = library.reconciled([asked])
        try:
            made = library.made("ObjAlloc", reconciled)
        finally:
            library.drop("AttrListFree", reconciled)
        return SciBuffer(made, library.made("ObjGetCpuPtr", made), size_bytes)

    def shape(self, object_: int) -> tuple[int, int]:
        """Return a buffer's size and the alignment of its allocation, in bytes; 0 for a value that is not stated."""
        library = self._library
        attributes = library.made("ObjGetAttrList", object_)  # not freed here: the object owns it
        keys = (_TENSOR_SIZE, _RAW_SIZE, _BASE_ALIGNMENT, _RAW_ALIGNMENT)
        pairs = (Attribute * len(keys))(*(Attribute(key, None, 0) for key in keys))
        library.call("AttrListGetAttrs", attributes, pairs, len(keys))
        tensor, raw, base, alignment = (
            ctypes.c_uint64.from_address(pair.value).value if pair.value else 0 for pair in pairs
        )
        return tensor or raw, base or alignment

    def free(self, object_: int) -> None:
        """Free a buffer, which must not be registered with any handle."""
        self._library.drop("ObjFree", object_)

    def close(self) -> None:
        """Close the library's module. Call this after all buffers are freed."""
        self._library.close_module()
