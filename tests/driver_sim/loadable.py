"""Writes loadables of the simulated DLA, and says what they compute, so that tests can check what comes out.

The format and the arithmetic are the simulator's own (``cudla_loadable.h``): no real accelerator takes such a file, and
the simulated one takes no other.

    x, y = Tensor("x", (1, 3, 4, 4)), Tensor("y", (1, 3, 4, 4))
    double = Loadable(Operation.AFFINE, inputs=(x,), outputs=(y,), scale=2)
    Path("double.loadable").write_bytes(double.to_bytes())
    (doubled,) = double.expected([values])
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DataFormat", "DataType", "Loadable", "Operation", "Tensor"]

MAGIC = b"CFSIMDLA"
VERSION = 1
_HEADER = struct.Struct("<8s6I2d")
_DESCRIPTOR = struct.Struct("<81s7x5Q5B3x8I")

Array = npt.NDArray[Any]


class Operation(IntEnum):
    """What a loadable computes."""

    AFFINE = 0  #: output i = scale * input i + bias
    SUM = 1  #: output 0 = scale * (the sum of all inputs) + bias
    BOX_MEAN = 2  #: output i = scale * (the mean of the block of input i that a cell covers) + bias
    ARGMAX = 3  #: output i = for each n, the place of the greatest element of input i in (c, h, w), the first of them


class DataType(IntEnum):
    """Element types, numbered as in NVDLA's loadable schema (INT32 is the simulator's own)."""

    FLOAT = 1
    HALF = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    UINT16 = 6
    INT32 = 7

    @property
    def numpy(self) -> np.dtype[Any]:
        """Return numpy's type."""
        names = {1: "<f4", 2: "<f2", 3: "<i2", 4: "i1", 5: "u1", 6: "<u2", 7: "<i4"}
        return np.dtype(names[self.value])


class DataFormat(IntEnum):
    """In which order the elements lie in memory, numbered as in NVDLA's loadable schema."""

    NCHW = 1
    NHWC = 2


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's descriptor. ``shape`` is (n, c, h, w) in either format.

    A row of memory (of w elements, in NHWC of w * c) starts at a multiple of ``row_multiple_bytes``, as an
    accelerator's does; so does the end of the tensor.
    """

    name: str
    shape: tuple[int, int, int, int]
    data_type: DataType = DataType.FLOAT
    data_format: DataFormat = DataFormat.NCHW
    row_multiple_bytes: int = 32

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Return bytes from an element to the next in w, h, c and n: the descriptor's order."""
        _, c, h, w = self.shape
        element = self.data_type.numpy.itemsize
        if self.data_format is DataFormat.NHWC:
            row = self._rounded(w * c * element)
            return (c * element, row, element, h * row)
        row = self._rounded(w * element)
        return (element, row, h * row, c * h * row)

    @property
    def size_bytes(self) -> int:
        """Return how much memory it takes, with the padding."""
        return self.shape[0] * self.strides[3]

    def packed(self, values: Array) -> bytes:
        """Return the tensor's memory with these values in it; the padding is zero."""
        memory = np.zeros(self.size_bytes, np.uint8)
        self._view(memory)[...] = np.asarray(values).reshape(self.shape)
        return memory.tobytes()

    def unpacked(self, memory: bytes | bytearray | memoryview) -> Array:
        """Return the values that lie in a tensor's memory, as an array of its shape."""
        return self._view(np.frombuffer(memory, np.uint8, self.size_bytes)).copy()

    def descriptor(self) -> bytes:
        """Return the descriptor as it stands in a loadable."""
        strides = (*self.strides, 0, 0, 0, 0)
        kinds = (self.data_format, self.data_type, 0, 0, 0)
        return _DESCRIPTOR.pack(self.name.encode(), self.size_bytes, *self.shape, *kinds, *strides)

    def _rounded(self, size_bytes: int) -> int:
        return -(-size_bytes // self.row_multiple_bytes) * self.row_multiple_bytes

    def _view(self, memory: npt.NDArray[np.uint8]) -> Array:
        strides = self.strides[::-1]
        return np.ndarray(self.shape, self.data_type.numpy, memory.data, 0, strides)


@dataclass(frozen=True, slots=True)
class Loadable:
    """A network of one operation. ``busy_us`` is how long an engine takes for a task, on top of the arithmetic."""

    operation: Operation
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scale: float = 1.0
    bias: float = 0.0
    statistics: tuple[Tensor, ...] = ()
    busy_us: int = 0

    def to_bytes(self) -> bytes:
        """Return the loadable as ``cudlaModuleLoadFromMemory`` of the simulator takes it."""
        tensors = (*self.inputs, *self.outputs, *self.statistics)
        counts = (len(self.inputs), len(self.outputs), len(self.statistics))
        header = _HEADER.pack(MAGIC, VERSION, self.operation, *counts, self.busy_us, self.scale, self.bias)
        return header + b"".join(tensor.descriptor() for tensor in tensors)

    def expected(self, values: Sequence[Array]) -> list[Array]:
        """Return what the outputs are for these inputs, each of its tensor's shape and type."""
        doubles = [
            np.asarray(each).astype(tensor.data_type.numpy).astype(np.float64).reshape(tensor.shape)
            for each, tensor in zip(values, self.inputs, strict=True)
        ]
        if self.operation is Operation.SUM:
            doubles = [np.sum(doubles, axis=0)]
        return [self._computed(each, output) for each, output in zip(doubles, self.outputs, strict=True)]

    def _computed(self, values: npt.NDArray[np.float64], output: Tensor) -> Array:
        if self.operation is Operation.ARGMAX:
            places = values.reshape(values.shape[0], -1).argmax(axis=1)
            return _stored(places.reshape(output.shape).astype(np.float64), output.data_type)
        if self.operation is Operation.BOX_MEAN:
            values = _box_means(values, output.shape)
        return _stored(self.scale * values + self.bias, output.data_type)


def _box_means(values: npt.NDArray[np.float64], shape: tuple[int, int, int, int]) -> npt.NDArray[np.float64]:
    n, c, h, w = shape
    height, width = values.shape[2] // h, values.shape[3] // w
    blocks = values.reshape(n, c, h, height, w, width)
    total: npt.NDArray[np.float64] = np.zeros(shape)
    for row, column in product(range(height), range(width)):  # in the order of the library, for the same rounding
        total += blocks[:, :, :, row, :, column]
    total /= height * width
    return total


def _stored(values: npt.NDArray[np.float64], data_type: DataType) -> Array:
    kind = data_type.numpy
    if kind.kind != "f":
        limits = np.iinfo(kind)
        values = np.clip(np.rint(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)), limits.min, limits.max)
    with np.errstate(over="ignore"):  # what is too large for half precision is infinite, as in the library
        return values.astype(kind)
