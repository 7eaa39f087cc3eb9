"""Where a DLPack tensor lies, and how.

PyNvVideoCodec's encoder looks at DLPack of objects of few kinds, and passes the stream in a way that newer tensors
refuse. So the capsule is read here, and the package gets planes at its address. Source: DLPack's dlpack.h
(DLManagedTensor) and the Python array interchange protocol.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import EncoderFailed

__all__ = ["CPU", "CUDA", "DeviceTensor", "device_kind", "device_tensor"]

CPU: Final = 1
CUDA: Final = 2
"""DLDeviceType."""

_NAME: Final = b"dltensor"
_DEFAULT_STREAM: Final = 1
"""CUDA's legacy default stream, as the protocol numbers it: the producer's work is ordered before it."""


class _Tensor(ctypes.Structure):
    """DLTensor, which a DLManagedTensor begins with."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTensor:
    """A tensor in device memory. ``strides_bytes`` None is C order; ``owner`` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    item_bytes: int
    owner: object = field(repr=False)


def device_kind(tensor: Any) -> int:  # noqa: ANN401 - whatever speaks DLPack
    """Return on which kind of device a tensor is (DLDeviceType)."""
    return int(tensor.__dlpack_device__()[0])


def device_tensor(tensor: Any) -> DeviceTensor:  # noqa: ANN401 - whatever speaks DLPack
    """Return where a CUDA tensor lies.

    The capsule is not consumed: it owns the tensor until whoever holds the answer drops it.

    Raises:
        EncoderFailed: the tensor gives no capsule of the known kind, or is not on a CUDA device.
    """
    capsule = tensor.__dlpack__(stream=_DEFAULT_STREAM)
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        found = _Tensor.from_address(int(read(capsule, _NAME) or 0))
    except (ValueError, TypeError) as error:
        message = f"a {type(tensor).__name__} gives no DLPack tensor: {error}"
        raise EncoderFailed(message, "Give a device frame, or planes by the CUDA array interface.") from None
    if found.device_type != CUDA:
        message = "the session reads pictures from the device, and this one is on the host"
        raise EncoderFailed(message, "Open the session for host input.")
    axes = range(found.ndim)
    item_bytes = found.bits * found.lanes // 8
    strides = tuple(int(found.strides[axis]) * item_bytes for axis in axes) if found.strides else None
    return DeviceTensor(
        address=int(found.data or 0) + int(found.byte_offset),
        shape=tuple(int(found.shape[axis]) for axis in axes),
        strides_bytes=strides,
        item_bytes=item_bytes,
        owner=(capsule, tensor),
    )
