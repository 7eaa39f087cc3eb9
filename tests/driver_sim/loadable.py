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
    BOX_MEAN = 1  #: output i = scale * (the mean of the input block of cell i) + bias


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

    Each row of memory starts at a multiple of 32 bytes, as on an accelerator; the tensor also ends at such a multiple.
    """

    name: str
    shape: tuple[int, int, int, int]
    data_type: DataType = DataType.FLOAT

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Return the steps in bytes between elements along w, h, c and n, in the descriptor's order."""
        _, c, h, w = self.shape
        element = self.data_type.numpy.itemsize
        row = -(-w * element // ROW_BYTES) * ROW_BYTES
        return (element, row, h * row, c * h * row)

    def descriptor(self) -> bytes:
        """Return the descriptor in the form of a loadable."""
        size_bytes, strides = self.shape[0] * self.strides[3], (*self.strides, 0, 0, 0, 0)
        return _DESCRIPTOR.pack(self.name.encode(), size_bytes, *self.shape, NCHW, self.data_type, 0, 0, 0, *strides)


@dataclass(frozen=True, slots=True)
class Loadable:
    """A network of one operation. ``busy_us`` is the additional time that an engine takes for a task."""

    operation: Operation
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scale: float = 1.0
    bias: float = 0.0
    statistics: tuple[Tensor, ...] = ()
    busy_us: int = 0

    def to_bytes(self) -> bytes:
        """Return the loadable in the form for the simulator's ``cudlaModuleLoadFromMemory``."""
        tensors = (*self.inputs, *self.outputs, *self.statistics)
        counts = (len(self.inputs), len(self.outputs), len(self.statistics))
        header = _HEADER.pack(MAGIC, VERSION, self.operation, *counts, self.busy_us, self.scale, self.bias)
        return header + b"".join(tensor.descriptor() for tensor in tensors)

    def expected(self, values: Sequence[Array]) -> list[Array]:
        """Return the outputs for these inputs, each with its tensor's shape and type."""
        doubles = [
            np.asarray(each).astype(tensor.data_type.numpy).astype(np.float64).reshape(tensor.shape)
            for each, tensor in zip(values, self.inputs, strict=True)
        ]
        return [self._computed(each, output) for each, output in zip(doubles, self.outputs, strict=True)]

    def _computed(self, values: npt.NDArray[np.float64], output: Tensor) -> Array:
        if self.operation is Operation.BOX_MEAN:
            values = _box_means(values, output.shape)
        with np.errstate(over="ignore"):  # numbers too large for half precision become infinite, as in the library
            return (self.scale * values + self.bias).astype(output.data_type.numpy)


def _box_means(values: npt.NDArray[np.float64], shape: tuple[int, int, int, int]) -> npt.NDArray[np.float64]:
    n, c, h, w = shape
    height, width = values.shape[2] // h, values.shape[3] // w
    blocks = values.reshape(n, c, h, height, w, width)
    total: npt.NDArray[np.float64] = np.zeros(shape)
    for row, column in product(range(height), range(width)):  # sums in the library's order have the same rounding
        total += blocks[:, :, :, row, :, column]
    total /= height * width
    return total
