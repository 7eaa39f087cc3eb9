"""Converts between arrays (pictures, channels, rows, columns) and a tensor's memory.

NVIDIA's documents do not define a loadable's strides. As in NVDLA's open runtime, the strides are read as the
steps to the next pixel, row, channel plane and picture, and 0 means no padding. This was not measured on hardware.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....errors import Unsupported
from ..engine.tensors import DataFormat, PixelMapping, TensorDescriptor

GROUP_BYTES: Final = 32
"""The size of a group of adjacent channels in NCxHWx: 16 channels of FP16, or 32 of INT8."""
_REBUILD: Final = "Build the loadable with linear inputs and outputs, for example DLA_LINEAR or CHW16."


def pack(descriptor: TensorDescriptor, values: NDArray[Any]) -> NDArray[np.uint8]:
    """Fill a tensor's memory with ``values`` and zero padding; ``Unsupported`` if the tensor's layout is unknown."""
    memory = np.zeros(descriptor.size_bytes, dtype=np.uint8)
    view = _view(descriptor, memory)
    n, groups, width, h, w = view.shape
    channels = values
    if groups * width != descriptor.c:
        channels = np.zeros((n, groups * width, h, w), dtype=values.dtype)
        channels[:, : descriptor.c] = values
    view[...] = channels.reshape(view.shape)
    return memory


def unpack(descriptor: TensorDescriptor, memory: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the values in a tensor's memory, as a new array; ``Unsupported`` if the tensor's layout is unknown."""
    view = _view(descriptor, memory)
    n, groups, width, h, w = view.shape
    return np.array(view).reshape(n, groups * width, h, w)[:, : descriptor.c]


def _view(descriptor: TensorDescriptor, memory: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the memory as an array (pictures, groups of channels, channels of a group, rows, columns)."""
    if descriptor.pixel_mapping is not PixelMapping.PITCH_LINEAR:
        raise Unsupported(f"the tensor {descriptor.name} is block-linear, which cuDLA does not support", _REBUILD)
    dtype = descriptor.data_type.dtype
    shape, strides = tensor_steps(descriptor)
    last = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    if min(shape) < 1 or last + dtype.itemsize > descriptor.size_bytes:
        message = (
            f"the tensor {descriptor.name} of shape {descriptor.shape} does not fit its {descriptor.size_bytes} bytes"
        )
        raise Unsupported(message, _REBUILD)
    return np.ndarray(shape, dtype, memory.data, 0, strides)


def tensor_steps(
    descriptor: TensorDescriptor,
) -> tuple[tuple[int, int, int, int, int], tuple[int, int, int, int, int]]:
    """Return the shape (pictures, channel groups, channels in a group, rows, columns), and the steps in bytes."""
    element = descriptor.data_type.dtype.itemsize
    n, c, h, w = descriptor.shape
    pixel, row, plane, picture, *_ = descriptor.strides_bytes
    if descriptor.data_format is DataFormat.NCHW:
        pixel = pixel or element
        row = row or w * pixel
        plane = plane or h * row
        return (n, c, 1, h, w), (picture or c * plane, plane, element, row, pixel)
    if descriptor.data_format is DataFormat.NHWC:
        pixel = max(pixel, c * element)
        row = row or w * pixel
        return (n, c, 1, h, w), (picture or h * row, element, element, row, pixel)
    if descriptor.data_format is DataFormat.NCxHWx:
        width = GROUP_BYTES // element
        groups = -(-c // width)
        row = row or w * GROUP_BYTES
        plane = plane or h * row
        return (n, groups, width, h, w), (picture or groups * plane, plane, element, row, GROUP_BYTES)
    raise Unsupported(f"the tensor {descriptor.name} does not state the order of its elements", _REBUILD)
