"""Finds a tensor's place on the device and its layout, through DLPack or the CUDA array interface.

PyNvVideoCodec reads only a few kinds of DLPack capsules, so the capsule is read here. Sources: dlpack.h
(DLManagedTensor) and the Python array interchange protocol; the CUDA Array Interface, version 3.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import EncoderFailed
from .frames_dlpack import CUDA, DLTensor

_NAME: Final = b"dltensor"
_NOT_WHOLE: Final = "the samples are not whole numbers of 8 or 16 bits"
_ADVICE: Final = "Round and convert the samples first."
DEFAULT_STREAM: Final = 1
"""CUDA's legacy default stream, as the protocol and the driver (CU_STREAM_LEGACY) number it."""
THREADS_STREAM: Final = 2
"""The default stream of the thread that uses this handle (CU_STREAM_PER_THREAD)."""
_WHOLE_NUMBERS: Final = (0, 1)
"""DLDataTypeCode of signed and unsigned whole numbers; many libraries have no unsigned 16 bits."""
_WHOLE_KINDS: Final = ("i", "u")
"""The letters of signed and unsigned whole numbers in the array interface's type strings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTensor:
    """A tensor in memory of a CUDA device."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None  # None means C order
    item_bytes: int
    owner: object = field(repr=False)  # keeps the memory alive
    streams: tuple[int, ...] = ()  # handles of CUDA streams, whose work completes the samples
    device: int | None = None  # None means not stated


def device_kind(tensor: Any) -> int:
    """Return the kind of a tensor's device (DLDeviceType); ``EncoderFailed`` if the tensor does not state the kind."""
    with _foreign(tensor):
        return int(tensor.__dlpack_device__()[0])


def device_tensor(tensor: Any) -> DeviceTensor:
    """Return where a CUDA tensor is. The capsule is not consumed: it owns the tensor until the result is dropped.

    ``EncoderFailed`` if the tensor gives no capsule of a known kind, is not on a CUDA device, or does not hold whole
    numbers.
    """
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    with _foreign(tensor):
        capsule = tensor.__dlpack__(stream=DEFAULT_STREAM)  # this stream then waits for the producer's work
        found = DLTensor.from_address(int(read(capsule, _NAME) or 0))
    if found.device_type != CUDA:
        message = "the session reads pictures from the device, but this picture is on the host"
        raise EncoderFailed(message, "Open the session for host input.")
    if found.code not in _WHOLE_NUMBERS:
        raise EncoderFailed(_NOT_WHOLE, _ADVICE)
    axes = range(found.ndim)
    item_bytes = found.bits * found.lanes // 8
    strides = tuple(int(found.strides[axis]) * item_bytes for axis in axes) if found.strides else None
    return DeviceTensor(
        address=int(found.data or 0) + int(found.byte_offset),
        shape=tuple(int(found.shape[axis]) for axis in axes),
        strides_bytes=strides,
        item_bytes=item_bytes,
        owner=(capsule, tensor),
        streams=(DEFAULT_STREAM,),
        device=int(found.device_id),
    )


def array_tensor(array: Any) -> DeviceTensor:
    """Return where an array with ``__cuda_array_interface__`` is; ``EncoderFailed`` as for ``device_tensor``."""
    with _foreign(array):
        interface = array.__cuda_array_interface__
        kind, strides, stream = str(interface["typestr"]), interface.get("strides"), interface.get("stream")
        found = DeviceTensor(
            address=int(interface["data"][0]),
            shape=tuple(int(length) for length in interface["shape"]),
            strides_bytes=None if strides is None else tuple(strides),
            item_bytes=int(kind[2:]),
            owner=array,
            # 0 is not allowed, but PyNvVideoCodec writes 0 for the default stream.
            streams=() if stream is None else (int(stream) or DEFAULT_STREAM,),
        )
    if kind[1] not in _WHOLE_KINDS:
        raise EncoderFailed(_NOT_WHOLE, _ADVICE)
    return found


@contextmanager
def _foreign(tensor: object) -> Iterator[None]:
    """Raise errors of a foreign tensor, such as a tensor of PyTorch with gradients, as ``EncoderFailed``."""
    try:
        yield
    except Exception as error:  # each framework raises its own errors
        message = f"a {type(tensor).__name__} does not say where its samples are: {error}"
        raise EncoderFailed(message, "Give a plain tensor (detach()), a device frame, or planes.") from error
