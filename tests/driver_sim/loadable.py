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

__all__ = ["DataType", "Loadable", "Operation", "Tensor"]

MAGIC = b"CFSIMDLA"
VERSION = 1
NCHW = 1
ROW_BYTES = 32
_HEADER = struct.Struct("<8s6I2d")
_DESCRIPTOR = struct.Struct("<81s7x5Q5B3x8I")

Array = npt.NDArray[Any]


class Operation(IntEnum):
    """What a loadable computes."""

    AFFINE = 0  #: output i = scale * input i + bias
    BOX_MEAN = 1  #: output i = scale * (the mean of the block of input i that a cell covers) + bias


class DataType(IntEnum):
    """Element types, numbered as in NVDLA's loadable schema."""

    FLOAT = 1
    HALF = 2

    @property
    def numpy(self) -> np.dtype[Any]:
        """Return numpy's type."""
        return np.dtype("<f4" if self is DataType.FLOAT else "<f2")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's descriptor: ``shape`` is (n, c, h, w), in that order in memory (NCHW).

    A row of memory starts at a multiple of 32 bytes, as an accelerator's does; so does the end of the tensor.
    """

    name: str
    shape: tuple[int, int, int, int]
    data_type: DataType = DataType.FLOAT

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Return bytes from an element to the next in w, h, c and n: the descriptor's order."""
        _, c, h, w = self.shape
        element = self.data_type.numpy.itemsize
        row = -(-w * element // ROW_BYTES) * ROW_BYTES
        return (element, row, h * row, c * h * row)

    def descriptor(self) -> bytes:
        """Return the descriptor as a loadable has it."""
        size_bytes, strides = self.shape[0] * self.strides[3], (*self.strides, 0, 0, 0, 0)
        return _DESCRIPTOR.pack(self.name.encode(), size_bytes, *self.shape, NCHW, self.data_type, 0, 0, 0, *strides)


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
        return [self._computed(each, output) for each, output in zip(doubles, self.outputs, strict=True)]

    def _computed(self, values: npt.NDArray[np.float64], output: Tensor) -> Array:
        if self.operation is Operation.BOX_MEAN:
            values = _box_means(values, output.shape)
        with np.errstate(over="ignore"):  # what is too large for half precision is infinite, as in the library
            return (self.scale * values + self.bias).astype(output.data_type.numpy)


def _box_means(values: npt.NDArray[np.float64], shape: tuple[int, int, int, int]) -> npt.NDArray[np.float64]:
    n, c, h, w = shape
    height, width = values.shape[2] // h, values.shape[3] // w
    blocks = values.reshape(n, c, h, height, w, width)
    total: npt.NDArray[np.float64] = np.zeros(shape)
    for row, column in product(range(height), range(width)):  # in the order of the library, for the same rounding
        total += blocks[:, :, :, row, :, column]
    total /= height * width
    return total
