"""The memory of a tensor: new, or the caller's, given through DLPack or the CUDA array interface.

Sources: dlpack.h; the Python array API standard; the CUDA Array Interface, version 3.
"""

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...errors import UsageError
from ..surfaces.frames_dlpack import BFLOAT, CPU, CUDA, FLOAT, UNSIGNED, described, exported
from ..surfaces.idle_memory import IdleMemory, fits
from .tensor_format import ELEMENT_BYTES, TensorFormat

KINDS: Final = {
    "uint8": (UNSIGNED, 8),
    "float16": (FLOAT, 16),
    "float32": (FLOAT, 32),
    "bfloat16": (BFLOAT, 16),
}
"""The (DLDataTypeCode, bits) of each type of number."""
STORED: Final = {"uint8": np.uint8, "float16": np.float16, "float32": np.float32, "bfloat16": np.uint16}
_CODES: Final = {"u": UNSIGNED, "f": FLOAT}
_PINNED: Final = 3
"""The DLDeviceType of page-locked host memory."""
_HALF_BITS: Final = 16
_MOST_FREE: Final = 2
"""How many free blocks of memory are kept for later tensors."""
_MOST_IDLE_BYTES: Final = 512 << 20
"""How much memory this process keeps for the tensors of later films: a batch of 64 pictures of 1080p."""
_LEAST_IDLE_BYTES: Final = 1 << 20
"""The smallest memory that is kept for later films. Smaller memory is not kept, because mapping it costs little."""
_ADVICE: Final = "Pass writable memory of the tensor's type and shape as out=, or omit out=."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorPlace:
    """Where a tensor's memory is, and how its values are laid out in it."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    kind: tuple[int, int]  # (DLDataTypeCode, bits)
    device: tuple[int, int]  # (DLDeviceType, number)
    stream: int | None = None  # the handle of the CUDA stream for which to wait before writing
    owner: object = field(repr=False)  # keeps the memory alive


def tensor_place(out: Any, stream: int | None = None) -> TensorPlace:
    """Return where the caller's tensor is; ``UsageError`` if it does not expose its memory, or is read-only.

    On a device, the memory may still be in use by the tensor's library. With DLPack, that library makes the CUDA
    ``stream`` wait for its own work. With the CUDA array interface, the returned place names the stream for which the
    caller must wait.
    """
    if not hasattr(out, "__dlpack__") and not hasattr(out, "__cuda_array_interface__"):
        _refuse(f"out= is a {type(out).__name__}, which is not a tensor")
    try:
        return _by_dlpack(out, stream) if hasattr(out, "__dlpack__") else _by_interface(out)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - each framework raises its own errors
        _refuse(f"out= does not say where its memory is: {next(iter(str(error).splitlines()), type(error).__name__)}")


def checked(place: TensorPlace, format_: TensorFormat, shape: tuple[int, ...]) -> TensorPlace:
    """Return the place if it can hold this tensor; otherwise raise ``UsageError``."""
    if place.shape != shape:
        _refuse(f"out= has the shape {_shown(place.shape)}, but the tensor has {_shown(shape)}")
    stored_alike = format_.dtype == "bfloat16" and place.kind == (UNSIGNED, 16)
    if place.kind != KINDS[format_.dtype] and not stored_alike:
        _refuse(f"out= does not hold {format_.dtype}")
    spans = sorted((step, count) for step, count in zip(place.strides_bytes, shape, strict=True) if count > 1)
    least = ELEMENT_BYTES[format_.dtype]
    for step, count in spans:
        if step < least:
            _refuse("out= has elements that overlap or are in reverse order")
        least = step * count
    return place


def _by_dlpack(out: Any, stream: int | None) -> TensorPlace:
    kind = int(out.__dlpack_device__()[0])
    asked: dict[str, Any] = {} if kind != CUDA else {"stream": stream}
    try:
        capsule = out.__dlpack__(max_version=(1, 0), **asked)
    except TypeError:  # the exporter is older than DLPack 1.0
        capsule = out.__dlpack__(**asked)
    found, is_read_only = described(capsule)
    if is_read_only:
        _refuse("out= is read-only")
    axes, item_bytes = range(found.ndim), found.bits * found.lanes // 8
    shape = tuple(int(found.shape[axis]) for axis in axes)
    strides = tuple(int(found.strides[axis]) * item_bytes for axis in axes) if found.strides else None
    return TensorPlace(
        address=int(found.data or 0) + int(found.byte_offset),
        shape=shape,
        strides_bytes=strides or _c_order(shape, item_bytes),
        kind=(int(found.code), int(found.bits) * int(found.lanes)),
        device=(int(found.device_type), int(found.device_id)),
        owner=(capsule, out),
    )


def _by_interface(out: Any) -> TensorPlace:
    interface = out.__cuda_array_interface__
    address, is_read_only = interface["data"]
    if is_read_only:
        _refuse("out= is read-only")
    kind, item_bytes = str(interface["typestr"])[1], int(str(interface["typestr"])[2:])
    shape, stream = tuple(int(length) for length in interface["shape"]), interface.get("stream")
    return TensorPlace(
        address=int(address),
        shape=shape,
        strides_bytes=tuple(interface.get("strides") or _c_order(shape, item_bytes)),
        kind=(_CODES.get(kind, -1), 8 * item_bytes),
        device=(CUDA, -1),
        stream=None if stream is None else int(stream) or 1,
        owner=out,
    )


def _c_order(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) * item_bytes for axis in range(len(shape)))


@dataclass(frozen=True, slots=True, eq=False)
class HostTensor:
    """A tensor on the host."""

    array: NDArray[Any]  # the tensor's memory; bfloat16 as the bits of uint16
    given: object  # the object for the user: an array, or the given ``out``


IDLE: Final = IdleMemory(_MOST_IDLE_BYTES, _LEAST_IDLE_BYTES)
"""The memory that this process keeps for the tensors of later films."""


class TensorMemory:
    """Memory for tensors on the host, which is reused once nothing refers to its tensor. Thread-safe.

    The system maps and clears new memory page by page, which may take as long as making the tensor. ``idle`` gets the
    free memory when this object is closed, and the memory of tensors that outlive this object.
    """

    def __init__(self, idle: IdleMemory = IDLE) -> None:
        self.free: list[NDArray[np.uint8]] = []
        self.idle = idle

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array in reused or new memory, with undefined content."""
        size_bytes = prod(shape) * np.dtype(dtype).itemsize
        try:
            memory = self.free.pop()
        except IndexError:
            memory = self.idle.take(size_bytes)
        if not fits(memory, size_bytes):
            memory = self.idle.take(size_bytes)
        return np.asarray(_Lent(memory, self))[:size_bytes].view(dtype).reshape(shape)

    def close(self) -> None:
        """Give the free memory to ``idle``. Idempotent."""
        while self.free:
            self.idle.keep(self.free.pop())


class _Lent:
    """The owner of lent memory, to which the arrays refer; once the last array is gone, it returns the memory."""

    def __init__(self, memory: NDArray[np.uint8], owner: TensorMemory) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory
        self._owner = weakref.ref(owner)
        self._idle = owner.idle

    def __del__(self) -> None:
        owner = self._owner()
        if owner is None:
            self._idle.keep(self._memory)
        elif len(owner.free) < _MOST_FREE:
            owner.free.append(self._memory)


def host_target(
    out: object,
    format_: TensorFormat,
    shape: tuple[int, ...],
    new: Callable[[tuple[int, ...], DTypeLike], NDArray[Any]] = np.empty,
) -> HostTensor:
    """Return the memory of ``out``, or memory from ``new`` if ``out`` is None.

    ``UsageError`` if ``out`` does not fit or is not on the host.
    """
    if out is None:
        array = new(shape, STORED[format_.dtype])
        return HostTensor(array, HostBfloat16(array) if format_.dtype == "bfloat16" else array)
    if isinstance(out, np.ndarray):
        return HostTensor(_own_view(out, format_, shape), out)
    place = checked(tensor_place(out), format_, shape)
    if place.device[0] not in (CPU, _PINNED):
        _refuse("out= is on a device, and the frames are on the host")
    extent = sum((count - 1) * step for count, step in zip(shape, place.strides_bytes, strict=True))
    memory = (ctypes.c_uint8 * (extent + format_.element_bytes)).from_address(place.address)
    memory._owner = place.owner  # type: ignore[attr-defined]  # noqa: SLF001 - keeps the owner as long as the array
    return HostTensor(np.ndarray(shape, STORED[format_.dtype], memoryview(memory), 0, place.strides_bytes), out)


def _own_view(out: NDArray[Any], format_: TensorFormat, shape: tuple[int, ...]) -> NDArray[Any]:
    array = out.view(np.uint16) if out.dtype.name == "bfloat16" else out
    if array.dtype.newbyteorder("=") != array.dtype or not array.flags.writeable:
        _refuse("out= is read-only" if array.dtype.isnative else "out= is not in the machine's byte order")
    place = TensorPlace(
        address=0,
        shape=array.shape,
        strides_bytes=array.strides,
        kind=(_CODES.get(array.dtype.kind, -1), 8 * array.itemsize),
        device=(CPU, 0),
        owner=out,
    )
    checked(place, format_, shape)
    return array


class HostBfloat16:
    """A DLPack tensor of bfloat16 on the host; NumPy lacks that type, so ``np.asarray`` gives a copy in float32."""

    dtype: Final = "bfloat16"

    def __init__(self, bits: NDArray[np.uint16]) -> None:
        self.bits = bits
        """The tensor's bits as whole numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.bits.shape

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        return self.bits.nbytes

    def __len__(self) -> int:
        return len(self.bits)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Return a copy in float32; ``ValueError`` if no copy may be made."""
        if copy is False:
            raise ValueError("NumPy has no bfloat16: the numbers become an array only by a copy")
        found = (self.bits.astype(np.uint32) << _HALF_BITS).view(np.float32)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kind, number) of the device (DLDeviceType)."""
        return CPU, 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule; ``BufferError`` if a stream, another device or a copy is requested."""
        if stream is not None or copy or (dl_device is not None and tuple(dl_device) != (CPU, 0)):
            raise BufferError("the numbers are shared only on the host, without a copy or a stream")
        return exported(
            self.bits.ctypes.data,
            self.shape,
            kind=KINDS["bfloat16"],
            device=(CPU, 0),
            owner=self.bits,
            max_version=max_version,
        )


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, _ADVICE)
