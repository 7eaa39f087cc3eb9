"""cuDLA's functions, called through NVIDIA's binding or directly in the library.

Each failure is a ``CudlaFailure``. Handles and addresses are numbers.
"""

import ctypes
import re
from typing import Any, Final, Protocol

import numpy as np

from ..nvsci.library import Loader
from .statuses import CudlaFailure, CudlaStatus, FunctionMissing
from .tensors import TENSOR_DESCRIPTOR, TensorDescriptor

DESCRIPTORS: Final = ((0, 2), (1, 3), (4, 5))
"""``cudlaModuleAttributeType`` for the number and the descriptors of inputs, outputs and task statistics."""
UNIFIED_ADDRESSING, DEVICE_VERSION = 0, 1
"""``cudlaDevAttributeType``."""
_ATTRIBUTES: Final = ("unified_addressing_supported", "device_version")


class Cudla(Protocol):
    """The calls of cuDLA that sessions make."""

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function by its C name, without the output parameters; return the values of the output parameters."""

    def attribute(self, handle: int, which: int) -> int:
        """Return a device's attribute (``cudlaDeviceGetAttribute``)."""

    def descriptors(self, module: int, kind: tuple[int, int]) -> tuple[TensorDescriptor, ...]:
        """Return a module's tensor descriptors; ``kind`` is one of ``DESCRIPTORS``."""

    def last_error(self, handle: int) -> CudlaStatus:
        """Return a handle's latest asynchronous error (``cudlaGetLastError``)."""


class CudlaBinding:
    """``cuda.bindings.cudla``, for hybrid mode only, because the binding refuses standalone mode."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function by its C name; the binding has the same name in lower case, with underscores."""
        name = re.sub("(?<=.)([A-Z])", r"_\1", function.removeprefix("cudla")).lower()
        try:
            return getattr(self._binding, name)(*arguments)
        except self._binding.CudlaError as error:
            raise CudlaFailure(function, CudlaStatus.of(int(error.status))) from None
        except RuntimeError as error:
            # The binding looks for the library at the first call, and for each function at that function's first call.
            if "FunctionNotFound" in type(error).__name__:
                raise FunctionMissing(function) from None
            raise CudlaFailure(function, CudlaStatus.DRIVER_NOT_FOUND) from None

    def attribute(self, handle: int, which: int) -> int:
        """Return a device's attribute (``cudlaDeviceGetAttribute``)."""
        return int(getattr(self.call("cudlaDeviceGetAttribute", handle, which), _ATTRIBUTES[which]))

    def descriptors(self, module: int, kind: tuple[int, int]) -> tuple[TensorDescriptor, ...]:
        """Return a module's tensor descriptors; ``kind`` is one of ``DESCRIPTORS``."""
        if not self.call("cudlaModuleGetAttributes", module, kind[0]):
            return ()
        found = self.call("cudlaModuleGetAttributes", module, kind[1])
        # Read from memory: the fields of the binding's object are views that die with the object.
        return _read(b"".join(ctypes.string_at(each.ptr, TENSOR_DESCRIPTOR.itemsize) for each in found))

    def last_error(self, handle: int) -> CudlaStatus:
        """Return a handle's latest asynchronous error (``cudlaGetLastError``)."""
        return CudlaStatus.of(int(self._binding.get_last_error(handle)))


_ADDRESS, _U32, _U64, _INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_Types = tuple[type[Any], ...]
_SIGNATURES: Final[dict[str, tuple[_Types, type[Any] | None, _Types]]] = {
    "cudlaGetVersion": ((), _U64, ()),
    "cudlaDeviceGetCount": ((), _U64, ()),
    "cudlaCreateDevice": ((_U64,), _ADDRESS, (_U32,)),
    "cudlaDestroyDevice": ((_ADDRESS,), None, ()),
    "cudlaDeviceGetAttribute": ((_ADDRESS, _INT), _U32, ()),
    "cudlaModuleLoadFromMemory": ((_ADDRESS, _ADDRESS, ctypes.c_size_t), _ADDRESS, (_U32,)),
    "cudlaModuleGetAttributes": ((_ADDRESS, _INT), _U64, ()),
    "cudlaModuleUnload": ((_ADDRESS, _U32), None, ()),
    "cudlaMemUnregister": ((_ADDRESS, _ADDRESS), None, ()),
    "cudlaImportExternalMemory": ((_ADDRESS, _ADDRESS), _ADDRESS, (_U32,)),
    "cudlaImportExternalSemaphore": ((_ADDRESS, _ADDRESS), _ADDRESS, (_U32,)),
    "cudlaGetNvSciSyncAttributes": ((_ADDRESS, _U32), None, ()),
    "cudlaSubmitTask": ((_ADDRESS, _ADDRESS, _U32, _ADDRESS, _U32), None, ()),
    "cudlaSetTaskTimeoutInMs": ((_ADDRESS, _U32), None, ()),
}
"""For each function: the parameters before the output parameter, the output's type, the parameters after the output."""


class CudlaLibrary:
    """``libcudla.so.1`` itself, for standalone mode, which NVIDIA's binding lacks. ``OSError`` if it is missing."""

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self._library = load("libcudla.so.1")

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function by its C name, without the output parameters; return the values of the output parameters."""
        before, written, after = _SIGNATURES[function]
        found = written() if written else None
        types = (*before, *((ctypes.POINTER(written),) if written else ()), *after)
        given = [*arguments[: len(before)], *((ctypes.byref(found),) if found is not None else ())]
        self._checked(function, types, [*given, *arguments[len(before) :]])
        return None if found is None else found.value or 0

    def attribute(self, handle: int, which: int) -> int:
        """Return a device's attribute (``cudlaDeviceGetAttribute``)."""
        value = int(self.call("cudlaDeviceGetAttribute", handle, which))
        return value & 0xFF if which == UNIFIED_ADDRESSING else value  # the value is a union whose member is one byte

    def descriptors(self, module: int, kind: tuple[int, int]) -> tuple[TensorDescriptor, ...]:
        """Return a module's tensor descriptors; ``kind`` is one of ``DESCRIPTORS``."""
        count = int(self.call("cudlaModuleGetAttributes", module, kind[0])) & 0xFFFFFFFF
        if not count:
            return ()
        room = ctypes.create_string_buffer(count * TENSOR_DESCRIPTOR.itemsize)
        pointer = ctypes.c_void_p(ctypes.addressof(room))
        types = (_ADDRESS, _INT, ctypes.POINTER(_ADDRESS))
        self._checked("cudlaModuleGetAttributes", types, [module, kind[1], ctypes.byref(pointer)])
        return _read(room.raw)

    def last_error(self, handle: int) -> CudlaStatus:
        """Return a handle's latest asynchronous error (``cudlaGetLastError``)."""
        return CudlaStatus.of(int(self._function("cudlaGetLastError", (_ADDRESS,))(handle)))

    def _checked(self, name: str, types: _Types, arguments: list[object]) -> None:
        status = CudlaStatus.of(int(self._function(name, types)(*arguments)) & 0xFFFFFFFF)
        if status is not CudlaStatus.SUCCESS:
            raise CudlaFailure(name, status)

    def _function(self, name: str, types: _Types) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise FunctionMissing(name) from None
        function.argtypes = types
        return function


def _read(content: bytes) -> tuple[TensorDescriptor, ...]:
    return tuple(TensorDescriptor.from_record(record) for record in np.frombuffer(content, dtype=TENSOR_DESCRIPTOR))
