"""Fences between the processor and a DLA, through libnvscisync (CUDA for Tegra, section 5.1.4)."""

import ctypes
from enum import IntEnum
from typing import Final

from .buffers import SciBuffers
from .library import Loader, NvSciFailure, SciLibrary

_NEED_CPU_ACCESS, _REQUIRED_PERMISSION = 1, 2
_TIMED_OUT: Final = 0x200
WITHOUT_END: Final = -1
"""The time limit that means an endless wait."""


class Role(IntEnum):
    """A party's use of a sync object: ``NvSciSyncAccessPerm``, and ``cudlaNvSciSyncAttributes``."""

    WAITS = 1
    SIGNALS = 2

    @property
    def other(self) -> "Role":
        """The role of the party at the other end of a sync object."""
        return Role.SIGNALS if self is Role.WAITS else Role.WAITS


class Fence:
    """A point on a sync object's timeline: an ``NvSciSyncFence``, which is empty (all 0) until a call fills it in."""

    def __init__(self) -> None:
        self.payload = (ctypes.c_uint64 * 6)()

    @property
    def address(self) -> int:
        """The address of the fence's payload, for calls of C functions."""
        return ctypes.addressof(self.payload)

    @property
    def content(self) -> bytes:
        """The bytes that distinguish the fence from others."""
        return bytes(self.payload)


class SciSyncs:
    """Makes sync objects, signals and waits.

    Methods raise ``NvSciFailure``; the constructor raises ``OSError`` if libnvscisync is missing.
    """

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self._library = SciLibrary("libnvscisync.so.1", "NvSciSync", load)
        self._context = 0

    def open(self) -> None:
        """Open the library's module; ``NvSciFailure`` if NvSci refuses."""
        self._library.open_module()

    def attributes(self) -> int:
        """Return an unreconciled attribute list for an engine to fill in (``cudlaGetNvSciSyncAttributes``)."""
        return self._library.attribute_list()

    def allocate(self, processor: Role, engine: int) -> int:
        """Return a new sync object between the processor, in this role, and an engine in the other role.

        ``engine`` is the engine's attribute list, which this call frees.
        """
        library = self._library
        own = library.attribute_list(
            (
                (_NEED_CPU_ACCESS, ctypes.c_bool(True)),  # noqa: FBT003 - ctypes has this signature
                (_REQUIRED_PERMISSION, ctypes.c_uint64(processor)),
            )
        )
        reconciled = library.reconciled([own, engine])
        try:
            return library.made("ObjAlloc", reconciled)
        finally:
            library.drop("AttrListFree", reconciled)

    def fence(self, object_: int) -> Fence:
        """Return the fence of the processor's next signal."""
        fence = Fence()
        self._library.call("ObjGenerateFence", object_, fence.address)
        return fence

    def signal(self, object_: int) -> None:
        """Signal the object's next point."""
        self._library.call("ObjSignal", object_)

    def wait(self, fence: Fence) -> None:
        """Sleep until a fence is reached. Used by one thread at a time. Fences report no errors of the engine."""
        self._library.call("FenceWait", fence.address, self._waiting(), ctypes.c_int64(WITHOUT_END))

    def spin(self, fence: Fence) -> None:
        """Poll until a fence is reached. Faster than ``wait``, but keeps a core busy (CUDA for Tegra, section 3.5)."""
        context = self._waiting()
        while True:
            try:
                return self._library.call("FenceWait", fence.address, context, ctypes.c_int64(0))
            except NvSciFailure as failure:
                if failure.code != _TIMED_OUT:
                    raise

    def clear(self, fence: Fence) -> None:
        """Clear a fence, so that it no longer holds its sync object."""
        self._library.drop("FenceClear", fence.address)

    def free(self, object_: int) -> None:
        """Free a sync object, which must not be registered with any handle."""
        self._library.drop("ObjFree", object_)

    def close(self) -> None:
        """Close the library's module; call this last."""
        context, self._context = self._context, 0
        if context:
            self._library.drop("CpuWaitContextFree", context)
        self._library.close_module()

    def _waiting(self) -> int:
        """Return the wait context that all calls of this object share; the calls must come from one thread."""
        self._context = self._context or self._library.made("CpuWaitContextAlloc", self._library.module)
        return self._context


class NvSci:
    """The buffers and sync objects of one session, in separate modules; ``OSError`` if a library is missing."""

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self.buffers = SciBuffers(load)
        self.syncs = SciSyncs(load)

    def open(self) -> None:
        """Open both modules; ``NvSciFailure`` if NvSci refuses."""
        self.buffers.open()
        self.syncs.open()

    def close(self) -> None:
        """Close both modules; first free everything that was made from them."""
        self.buffers.close()
        self.syncs.close()
