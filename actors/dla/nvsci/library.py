"""Calls NvSci's C libraries, as nvscibuf.h, nvscisync.h and nvscierror.h define them (DRIVE OS, Jetson Linux)."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

Loader = Callable[[str], Any]
"""Opens a shared library by name, as ``ctypes.CDLL`` does; ``OSError`` if the library is missing."""

ERRORS: Final = {
    0x11: "not supported",
    0x20: "access denied",
    0x21: "not permitted",
    0x22: "in the wrong state",
    0x30: "not enough memory",
    0x31: "not enough resources",
    0x32: "a resource failed",
    0x100: "a parameter is invalid",
    0x200: "timed out",
    0x10100: "the attributes cannot be reconciled",
    0x2000001: "signaler and waiter are incompatible",
    0x2000002: "the fence is cleared",
}
"""The meaning of the ``NvSciError`` codes that buffers and fences return."""


class NvSciFailure(Exception):
    """A failed call of NvSci: the name of the call, and the ``NvSciError``."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.call = call
        self.code = code

    @property
    def meaning(self) -> str:
        """The meaning of the error in words, with its code."""
        return f"{ERRORS.get(self.code, 'failed')} (NvSciError {self.code:#x})"


class Attribute(ctypes.Structure):
    """``NvSciBufAttrKeyValuePair`` and ``NvSciSyncAttrKeyValuePair``, which have the same layout."""

    _fields_ = (("key", ctypes.c_uint32), ("value", ctypes.c_void_p), ("length", ctypes.c_size_t))


Value = ctypes.c_bool | ctypes.c_uint32 | ctypes.c_uint64 | ctypes.Array[Any]


class SciLibrary:
    """A library in which the names of functions begin with ``prefix``; methods raise ``NvSciFailure``."""

    def __init__(self, name: str, prefix: str, load: Loader) -> None:
        self._library = load(name)
        self._prefix = prefix
        self.module = 0

    def call(self, function: str, *arguments: object) -> None:
        """Call a function that returns an ``NvSciError``. Whole numbers are passed as wide as a pointer."""
        name = self._prefix + function
        code = int(getattr(self._library, name)(*map(_passed, arguments)))
        if code:
            raise NvSciFailure(name, code & 0xFFFFFFFF)

    def drop(self, function: str, *arguments: object) -> None:
        """Call a function without a result, for example a function that frees an object."""
        foreign = getattr(self._library, self._prefix + function)
        foreign.restype = None
        foreign(*map(_passed, arguments))

    def made(self, function: str, *arguments: object) -> int:
        """Call a function whose last parameter receives a handle or an address; return that handle or address."""
        found = ctypes.c_void_p()
        self.call(function, *arguments, ctypes.byref(found))
        return found.value or 0

    def open_module(self) -> None:
        """Open the library's module, from which everything else is made."""
        self.module = self.made("ModuleOpen")

    def close_module(self) -> None:
        """Close the module; first free everything that was made from it. Idempotent."""
        module, self.module = self.module, 0
        if module:
            self.drop("ModuleClose", module)

    def attribute_list(self, attributes: Sequence[tuple[int, Value]] = ()) -> int:
        """Return a new unreconciled list with these attributes, given by key."""
        made = self.made("AttrListCreate", self.module)
        try:
            if attributes:
                pairs = [Attribute(key, ctypes.addressof(value), ctypes.sizeof(value)) for key, value in attributes]
                self.call("AttrListSetAttrs", made, (Attribute * len(pairs))(*pairs), len(pairs))
        except NvSciFailure:
            self.drop("AttrListFree", made)
            raise
        return made

    def reconciled(self, lists: Sequence[int]) -> int:
        """Reconcile lists, and free them; return the reconciled list, which the caller must free."""
        found, conflicts = ctypes.c_void_p(), ctypes.c_void_p()
        array = (ctypes.c_void_p * len(lists))(*lists)
        try:
            self.call("AttrListReconcile", array, len(lists), ctypes.byref(found), ctypes.byref(conflicts))
        finally:
            for each in (*lists, *([conflicts.value] if conflicts.value else [])):
                self.drop("AttrListFree", each)
        return found.value or 0


def _passed(argument: object) -> object:
    """Make whole numbers (addresses, handles and lengths) as wide as a pointer."""
    return ctypes.c_void_p(argument) if isinstance(argument, int) else argument
