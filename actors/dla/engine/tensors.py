"""A loadable's description of its tensors: cuDLA's descriptors as frozen values, with the numbers of cudla.h."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ....errors import Unsupported

NAME_BYTES: Final = 81
STRIDES: Final = 8

TENSOR_DESCRIPTOR: Final = np.dtype(
    {
        "names": [
            *("name", "size_bytes", "n", "c", "h", "w"),
            *("data_format", "data_type", "data_category", "pixel_format", "pixel_mapping", "strides"),
        ],
        "formats": [f"S{NAME_BYTES}", *["<u8"] * 5, *["u1"] * 5, ("<u4", (STRIDES,))],
        "offsets": [0, 88, 96, 104, 112, 120, 128, 129, 130, 131, 132, 136],
        "itemsize": 168,
    }
)
"""The memory layout of ``cudlaModuleTensorDescriptor``."""


class _OpenEnum(IntEnum):
    """An enumeration that newer versions may extend: unknown numbers become UNKNOWN, which is refused."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        del value
        return cls["UNKNOWN"]


class DataFormat(_OpenEnum):
    """The order of a tensor's elements in memory."""

    UNKNOWN = 0
    NCHW = 1
    NHWC = 2
    NCxHWx = 3  #: channels in groups of 32 bytes, with a plane for each group


class DataType(_OpenEnum):
    """The number type of a tensor's elements."""

    UNKNOWN = 0
    FLOAT = 1
    HALF = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    UINT16 = 6

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type; ``Unsupported`` if the loadable does not state the type."""
        if self is DataType.UNKNOWN:
            message = "the loadable does not state the type of its tensor"
            raise Unsupported(message, "Build the loadable with typed inputs and outputs.")
        return np.dtype(_DTYPES[self])


_DTYPES: Final = {
    DataType.FLOAT: "<f4",
    DataType.HALF: "<f2",
    DataType.INT16: "<i2",
    DataType.INT8: "i1",
    DataType.UINT8: "u1",
    DataType.UINT16: "<u2",
}


class DataCategory(IntEnum):
    """cuDLA's category of a tensor's content."""

    IMAGE = 0
    WEIGHT = 1
    FEATURE = 2
    PLANAR = 3
    BIAS = 4


class PixelFormat(_OpenEnum):
    """The order of samples in a pixel of an image tensor."""

    R8 = 0
    R10 = 1
    R12 = 2
    R16 = 3
    R16_I = 4
    R16_F = 5
    A16B16G16R16 = 6
    X16B16G16R16 = 7
    A16B16G16R16_F = 8
    A16Y16U16V16 = 9
    V16U16Y16A16 = 10
    A16Y16U16V16_F = 11
    A8B8G8R8 = 12
    A8R8G8B8 = 13
    B8G8R8A8 = 14
    R8G8B8A8 = 15
    X8B8G8R8 = 16
    X8R8G8B8 = 17
    B8G8R8X8 = 18
    R8G8B8X8 = 19
    A2B10G10R10 = 20
    A2R10G10B10 = 21
    B10G10R10A2 = 22
    R10G10B10A2 = 23
    A2Y10U10V10 = 24
    V10U10Y10A2 = 25
    A8Y8U8V8 = 26
    V8U8Y8A8 = 27
    Y8___U8V8_N444 = 28
    Y8___V8U8_N444 = 29
    Y10___U10V10_N444 = 30
    Y10___V10U10_N444 = 31
    Y12___U12V12_N444 = 32
    Y12___V12U12_N444 = 33
    Y16___U16V16_N444 = 34
    Y16___V16U16_N444 = 35
    FEATURE = 36
    UNKNOWN = 37


class PixelMapping(IntEnum):
    """How rows lie in memory. cuDLA takes no block-linear memory (CUDA for Tegra, section 5.4)."""

    PITCH_LINEAR = 0
    BLOCK_LINEAR = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescriptor:
    """One tensor of a loadable: ``cudlaModuleTensorDescriptor``. Sizes n, c, h, w count elements."""

    name: str
    size_bytes: int  # the size of the tensor's buffer, padding included
    n: int
    c: int
    h: int
    w: int
    data_format: DataFormat
    data_type: DataType
    data_category: DataCategory
    pixel_format: PixelFormat
    pixel_mapping: PixelMapping
    strides_bytes: tuple[int, ...] = (
        0,
    ) * STRIDES  # steps to the next element, row, channel (group), picture; 0: not stated

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Pictures, channels, rows, columns."""
        return self.n, self.c, self.h, self.w

    def to_bytes(self) -> bytes:
        """Return the descriptor as cuDLA would write it."""
        record = np.zeros((), dtype=TENSOR_DESCRIPTOR)
        record["name"] = self.name.encode()
        for name in ("size_bytes", "n", "c", "h", "w", "data_format", "data_type", "data_category", "pixel_format"):
            record[name] = getattr(self, name)
        record["pixel_mapping"] = self.pixel_mapping
        record["strides"] = self.strides_bytes
        return record.tobytes()

    @classmethod
    def from_record(cls, record: NDArray[np.void] | np.void) -> "TensorDescriptor":
        """Read a descriptor that cuDLA wrote; ``Unsupported`` if the descriptor has an unknown number."""
        try:
            return cls(
                name=bytes(record["name"]).split(b"\0")[0].decode("utf-8", "replace"),
                size_bytes=int(record["size_bytes"]),
                n=int(record["n"]),
                c=int(record["c"]),
                h=int(record["h"]),
                w=int(record["w"]),
                data_format=DataFormat(int(record["data_format"])),
                data_type=DataType(int(record["data_type"])),
                data_category=DataCategory(int(record["data_category"])),
                pixel_format=PixelFormat(int(record["pixel_format"])),
                pixel_mapping=PixelMapping(int(record["pixel_mapping"])),
                strides_bytes=tuple(int(stride) for stride in record["strides"]),
            )
        except ValueError as error:
            message = f"the loadable describes a tensor in an unknown way: {error}"
            raise Unsupported(message, "Build the loadable with a TensorRT that this cuDLA knows.") from None
