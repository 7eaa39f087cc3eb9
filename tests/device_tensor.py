"""A DLPack tensor at a given address, which it does not own, for tests of encoder input.

tensor = FakeDeviceTensor(address, (1620, 1920), item_bytes=1)
"""

import ctypes
from typing import Final

from codecfleet.actors.surfaces.frames_dlpack import CUDA, DLTensor

_UNSIGNED: Final = 1


class _Managed(ctypes.Structure):
    """DLManagedTensor (dlpack.h)."""

    _fields_ = (("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class FakeDeviceTensor:
    """A tensor of samples in C order, or with ``strides`` in samples, from ``byte_offset`` after ``address``.

    As in recent versions of DLPack, ``__dlpack__`` takes only keywords. ``streams`` has the streams that consumers
    passed; ``device_type``, ``device_id`` and ``code`` are DLPack's: 2 for CUDA, and 1 for unsigned.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        *,
        item_bytes: int,
        strides: tuple[int, ...] | None = None,
        device_type: int = CUDA,
        device_id: int = 0,
        code: int = _UNSIGNED,
        byte_offset: int = 0,
    ) -> None:
        self.streams: list[int | None] = []
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        tensor = DLTensor(
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
        self._managed = _Managed(tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._managed.tensor.device_type, self._managed.tensor.device_id)

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.streams.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        capsule: object = make(ctypes.addressof(self._managed), b"dltensor", None)
        return capsule
