"""Device arrays for consumers of DLPack or the CUDA array interface: PyTorch, CuPy, JAX, Numba.

A capsule keeps the owner of the memory until the consumer calls the deleter, or the unused capsule is freed. Sources:
dlpack.h (DLManagedTensor, DLManagedTensorVersioned 1.0); the Python array API standard; the CUDA Array Interface,
version 3.
"""

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any, Final, Protocol

CPU: Final = 1
CUDA: Final = 2
"""The DLDeviceType of CUDA devices."""
UNSIGNED: Final = 1
FLOAT: Final = 2
BFLOAT: Final = 4
"""The DLDataTypeCode of bfloat16."""
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_VERSION: Final = (1, 0)
_READ_ONLY: Final = 1
_AMBIGUOUS_STREAM: Final = 0
UNKNOWN_STREAM: Final = -1

# Separate function objects, since other users of ``ctypes.pythonapi`` set other argument types on its functions.
_python = ctypes.PyDLL(None)
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_python.PyCapsule_IsValid.restype = ctypes.c_int
_python.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.Py_IncRef.argtypes = (ctypes.py_object,)


class DLTensor(ctypes.Structure):
    """An array's place, kind and shape, as dlpack.h defines them."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class DeviceOwner(Protocol):
    """An owner that keeps memory on a CUDA device alive until every use of it is over."""

    @property
    def device(self) -> int:
        """The device's ordinal in this process."""

    def used_by(self, stream: int | None) -> None:
        """Record that the CUDA stream with this handle reads the memory; None is the default stream, -1 any stream."""


class DeviceArray:
    """A finished array of numbers on the device, in C order. ``owner`` notes which streams read the array.

    The numbers are unsigned, or of the kind ``code`` (DLDataTypeCode).
    """

    def __init__(
        self, address: int, shape: tuple[int, ...], item_bytes: int, owner: DeviceOwner, code: int = UNSIGNED
    ) -> None:
        self.shape = shape
        self.item_bytes = item_bytes
        self.address = address
        self.owner = owner
        self.code = code

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return prod(self.shape) * self.item_bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3; the consumer need not wait for any stream.

        A consumer does not name the stream in which it reads, so the memory is reused only after all work of the
        device. ``AttributeError`` for bfloat16, for which the interface has no name.
        """
        if self.code == BFLOAT:
            raise AttributeError("the CUDA array interface has no bfloat16: use DLPack")
        self.owner.used_by(UNKNOWN_STREAM)
        kind = "f" if self.code == FLOAT else "u"
        return {
            "shape": self.shape,
            "strides": None,
            "typestr": "|u1" if self.item_bytes == 1 else f"<{kind}{self.item_bytes}",
            "data": (self.address, False),
            "version": 3,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kind, number) of the device (DLDeviceType)."""
        return CUDA, self.owner.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule, of the newer kind if the consumer accepts that kind.

        ``stream`` is the handle of the stream in which the consumer reads, as the array API standard numbers it: None
        and 1 are the legacy default stream, 2 is the calling thread's default stream, and -1 leaves the stream open.
        Once the consumer has dropped the tensor, the memory is reused only after all work queued in that stream by
        then. ``BufferError`` if a copy, another device, or an ambiguous stream is requested.
        """
        device = self.__dlpack_device__()
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError(f"the samples are on the CUDA device {device[1]}, and are handed out without a copy")
        if stream == _AMBIGUOUS_STREAM and stream is not None:
            raise BufferError(
                "stream 0 is ambiguous: 1 is CUDA's legacy default stream, and 2 the thread's default stream"
            )
        self.owner.used_by(stream)
        return exported(
            self.address,
            self.shape,
            kind=(self.code, 8 * self.item_bytes),
            device=device,
            owner=self.owner,
            max_version=max_version,
        )


def described(capsule: object) -> tuple[DLTensor, bool]:
    """Return a capsule's description, and whether the array is read-only; ``ValueError`` if the capsule was used."""
    for name, structure in ((_PLAIN, _Managed), (_VERSIONED, _ManagedVersioned)):
        if _python.PyCapsule_IsValid(id(capsule), name):
            managed = structure.from_address(_python.PyCapsule_GetPointer(id(capsule), name))
            return managed.tensor, bool(getattr(managed, "flags", 0) & _READ_ONLY)
    raise ValueError("it is not a capsule of DLPack")


_held: dict[int, tuple[object, ...]] = {}
"""Exports that were not released yet: the objects that a structure needs, keyed by the structure's address.

Each use of this dictionary is one atomic operation.
"""


def exported(
    address: int,
    shape: tuple[int, ...],
    *,
    kind: tuple[int, int],
    device: tuple[int, int],
    owner: object,
    max_version: tuple[int, int] | None,
) -> object:
    """Return a capsule of numbers in C order, which keeps ``owner`` until the consumer is done.

    ``kind`` is (DLDataTypeCode, bits), ``device`` is (DLDeviceType, number). The capsule is of the newer kind if the
    consumer accepts that.
    """
    versioned = max_version is not None and max_version[0] >= _VERSION[0]
    managed = _ManagedVersioned() if versioned else _Managed()
    axes = len(shape)
    lengths = (ctypes.c_int64 * axes)(*shape)
    strides = (ctypes.c_int64 * axes)(*(prod(shape[axis + 1 :]) for axis in range(axes)))
    managed.tensor = DLTensor(
        data=address,
        device_type=device[0],
        device_id=device[1],
        ndim=axes,
        code=kind[0],
        bits=kind[1],
        lanes=1,
        shape=lengths,
        strides=strides,
        byte_offset=0,
    )
    managed.deleter = _DELETE
    name = _PLAIN
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = _VERSION
        name = _VERSIONED
    place = ctypes.addressof(managed)
    _held[place] = (managed, lengths, strides, owner)
    return _python.PyCapsule_New(place, name, _DESTROY)


# These functions are also called when the interpreter exits and the module's names are gone, so they hold references.


def _delete(address: int, held: dict[int, tuple[object, ...]] = _held) -> None:
    held.pop(address, None)


def _destroy(
    capsule: int,
    names: tuple[bytes, ...] = (_PLAIN, _VERSIONED),
    is_called: Callable[[int, bytes], int] = _python.PyCapsule_IsValid,
    address: Callable[[int, bytes], int] = _python.PyCapsule_GetPointer,
    held: dict[int, tuple[object, ...]] = _held,
) -> None:
    """Release a capsule that was not consumed; a consumed capsule has another name by then."""
    for name in names:
        if is_called(capsule, name):
            held.pop(address(capsule, name), None)


_DELETE: Final = _Deleter(_delete)
_DESTROY: Final = _Destructor(_destroy)
# These callbacks are never released: capsules and tensors can outlive this module, and call the callbacks when they are
# freed.
for _callback in (_DELETE, _DESTROY):
    _python.Py_IncRef(_callback)
