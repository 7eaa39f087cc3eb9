"""A DLPack tensor at an address that somebody else owns, for tests of encoder input.

tensor = FakeDeviceTensor(address, (1620, 1920), item_bytes=1)
"""

import ctypes
from typing import Final

_UNSIGNED: Final = 1
_CUDA: Final = 2


class _Managed(ctypes.Structure):
    """DLManagedTensor (dlpack.h)."""

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
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class FakeDeviceTensor:
    """A tensor of samples in C order, or with ``strides`` in samples. Like new ones, it takes keywords alone.

    It begins ``byte_offset`` after ``address``. ``streams`` holds the streams it was asked to be ready on;
    ``device_type``, ``device_id`` and ``code`` are DLPack's: 2 for CUDA, and 1 for unsigned.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        *,
        item_bytes: int,
        strides: tuple[int, ...] | None = None,
        device_type: int = _CUDA,
        device_id: int = 0,
        code: int = _UNSIGNED,
        byte_offset: int = 0,
    ) -> None:
        self.streams: list[int | None] = []
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self._managed = _Managed(
            data=address,
            device_type=device_type,
            device_id=device_id,
            ndim=len(shape),
            code=code,
            bits=8 * item_bytes,
            lanes=1,
            shape=self._shape,
            strides=self._strides,
            byte_offset=byte_offset,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._managed.device_type, self._managed.device_id)

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.streams.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        capsule: object = make(ctypes.addressof(self._managed), b"dltensor", None)
        return capsule
