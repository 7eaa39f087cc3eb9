"""Reads a caller's arrays on the GPU: NVENC reads them in place, or they are packed on the GPU or copied to the host.

Sources: CUDA Array Interface 3, "Synchronization"; Python array API standard, ``__dlpack__``; PyNvVideoCodec
programming guide 2.3, "Encode" (b: objects whose ``cuda()`` returns planes).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.device_tensor import DeviceTensor, array_tensor, device_kind, device_tensor
from ...actors.surfaces.formats import SurfaceFormat, surface_format
from ...actors.surfaces.frames_dlpack import CPU
from ...actors.surfaces.from_rgb import LEAST_HEIGHT
from ...actors.surfaces.strided import StridedChannel, StridedPicture
from ...errors import EncoderFailed, UsageError

ADVICE: Final = "docs/frames.md lists what can be encoded."
ROWS_AND_COLUMNS, WITH_CHANNELS = 2, 3  #: Axes of an array
_PLANAR: Final = {
    "nv12": "yuv420p",
    "p010le": "yuv420p10le",
    "nv16": "yuv422p",
    "p210le": "yuv422p10le",
    "yuv444p": "yuv444p",
}
"""The layouts in which NVENC reads the rows of all planes as one array, with FFmpeg's planar format of the same
samples."""
_SEPARATE: Final = ("yuv420p", "yuv422p", "yuv444p")  #: Layouts of three planes with separate rows
_CHANNELS: Final = {
    **dict.fromkeys(("rgb24", "rgba", "rgb0"), (0, 1, 2)),
    **dict.fromkeys(("bgr24", "bgra", "bgr0"), (2, 1, 0)),
    **dict.fromkeys(("argb", "0rgb"), (1, 2, 3)),
    **dict.fromkeys(("abgr", "0bgr"), (3, 2, 1)),
}
"""The positions of red, green and blue in a pixel."""
_IN_PAIRS: Final = {(2, 1): "nv12", (2, 2): "p010le", (1, 1): "nv16", (1, 2): "p210le"}
"""Layouts with interleaved chroma, by luma rows per chroma row and bytes per sample."""
_ROWS_A_PICTURE: Final = {"4:2:0": Fraction(3, 2), "4:2:2": Fraction(2), "4:4:4": Fraction(3)}
_BECOMES: Final = "yuv420p"  #: The format to which RGB is converted


@dataclass(frozen=True, slots=True, eq=False)
class DeviceInput:
    """A picture on the device: one array, or its planes."""

    planes: tuple[DeviceTensor, ...]
    pix_fmt: str  #: the picture's layout if the planes determine it, otherwise ""

    @property
    def streams(self) -> tuple[int, ...]:
        """The CUDA streams to wait for before reading the picture."""
        return tuple({stream for plane in self.planes for stream in plane.streams})

    @property
    def device(self) -> int | None:
        """The picture's CUDA device; None if it is not stated."""
        return self.planes[0].device

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape; for several planes, the shape of all their rows stacked."""
        first = self.planes[0].shape
        return first if len(self.planes) == 1 else (sum(prod(each.shape) for each in self.planes) // first[1], first[1])

    @property
    def item_bytes(self) -> int:
        """The size of a sample in bytes."""
        return self.planes[0].item_bytes


def find_tensor(item: object) -> DeviceInput | None:
    """Return a picture on the device, without leading axes of length 1; None if it is not on a device.

    Raises UsageError: the picture does not state its address, is empty, or has samples that are not integers.
    """
    try:
        found = _found(item)
    except EncoderFailed as error:
        raise UsageError(error.message, error.next_step) from error
    if found is None:
        return None
    for plane in found.planes:
        if min(plane.shape, default=0) < 1:
            raise UsageError(f"a tensor of {plane.shape} holds no picture", ADVICE)
    planes = tuple(_in_bytes(each) for each in found.planes)
    return replace(found, planes=planes if len(planes) > 1 else (_without_ones(planes[0]),))


def is_rows(pix_fmt: str) -> bool:
    """Return whether NVENC reads this layout, in which one array holds the rows of all planes."""
    return pix_fmt in _PLANAR


def strided_picture(found: DeviceInput, pix_fmt: str, matrix: int | None) -> StridedPicture | None:
    """Return a picture in a layout that the device can pack, otherwise None. RGB needs a ``matrix`` and even sides.

    Raises UsageError: the shape does not fit the layout.
    """
    if pix_fmt in _CHANNELS:
        return None if matrix is None else _rgb(found.planes[0], pix_fmt, matrix)
    format_ = surface_format(_PLANAR.get(pix_fmt, pix_fmt if pix_fmt in _SEPARATE else None))
    if format_ is None or (not is_rows(pix_fmt) and len(found.planes) == 1 and not _is_tight(found.planes[0])):
        return None
    if format_.sample_bytes != found.item_bytes:
        raise UsageError(f"samples of {found.item_bytes} bytes are not {pix_fmt}", ADVICE)
    if len(found.planes) == 1:
        width, height = picture_size(found.planes[0].shape, pix_fmt)
        channels = _of_rows(found.planes[0], format_, pix_fmt, height)
    else:
        channels, (width, height) = _of_planes(found.planes, format_, pix_fmt)
    if any(value % found.item_bytes for channel in channels for value in channel):
        return None
    return StridedPicture(
        channels=channels,
        width=width,
        height=height,
        pix_fmt=_PLANAR.get(pix_fmt, pix_fmt),
        format=format_,
        owner=found,
    )


def device_picture(picture: StridedPicture) -> DevicePicture:
    """Return a picture without padding, for NVENC to read in place."""
    address = picture.channels[0].address
    return DevicePicture(picture.format, address, picture.width, picture.height, picture.pix_fmt, picture.owner)


def picture_size(shape: tuple[int, ...], pix_fmt: str) -> tuple[int, int]:
    """Return (width, height) of stacked planes in a layout of NVENC. Raises UsageError: the shape does not fit."""
    format_ = surface_format(_PLANAR.get(pix_fmt, pix_fmt))
    rows, columns = shape if len(shape) == ROWS_AND_COLUMNS else (0, 0)
    height = rows / _ROWS_A_PICTURE["4:2:0" if format_ is None else format_.chroma]
    if height.denominator != 1 or not min(rows, columns) or not (format_ and format_.holds(columns, int(height))):
        raise UsageError(f"an array of {shape} is not a picture in {pix_fmt}: its sides do not fit", ADVICE)
    return columns, int(height)


def _rgb(tensor: DeviceTensor, pix_fmt: str, matrix: int) -> StridedPicture | None:
    format_ = surface_format(_BECOMES)
    indices = _CHANNELS[pix_fmt]
    if len(tensor.shape) != WITH_CHANNELS or tensor.item_bytes != 1 or tensor.shape[2] <= max(indices):
        return None
    height, width, _ = tensor.shape
    if format_ is None or not format_.holds(width, height) or height < LEAST_HEIGHT:
        return None
    down, across, deep = strides_of(tensor)
    red, green, blue = (StridedChannel(tensor.address + index * deep, across, down) for index in indices)
    return StridedPicture(
        channels=(red, green, blue),
        width=width,
        height=height,
        pix_fmt=_BECOMES,
        format=format_,
        matrix=matrix,
        owner=tensor,
    )


def _of_rows(
    tensor: DeviceTensor, format_: SurfaceFormat, pix_fmt: str, height: int
) -> tuple[StridedChannel, StridedChannel, StridedChannel]:
    down, across = strides_of(tensor)
    luma = StridedChannel(tensor.address, across, down)
    chroma = tensor.address + height * down
    if pix_fmt not in _SEPARATE:
        return luma, StridedChannel(chroma, 2 * across, down), StridedChannel(chroma + across, 2 * across, down)
    # The rows of a narrower plane have no gap between them.
    narrow = down // (1 + format_.halved_across)
    rows = height // (1 + format_.halved_down)
    return luma, StridedChannel(chroma, across, narrow), StridedChannel(chroma + rows * narrow, across, narrow)


def _of_planes(
    planes: tuple[DeviceTensor, ...], format_: SurfaceFormat, pix_fmt: str
) -> tuple[tuple[StridedChannel, StridedChannel, StridedChannel], tuple[int, int]]:
    """Return the channels of planes (rows, columns) or (rows, columns, components), and the picture's size."""
    height, width, *_ = planes[0].shape
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    in_pairs = pix_fmt not in _SEPARATE
    wanted = [height * width, *([2 * columns * rows] if in_pairs else [columns * rows] * 2)]
    is_of = [prod(each.shape) for each in planes] == wanted and all(
        each.shape[0] == count for each, count in zip(planes[1:], (rows, rows), strict=False)
    )
    if not is_of or not format_.holds(width, height):
        message = f"planes of {[each.shape for each in planes]} are not a picture in {pix_fmt}: their sides do not fit"
        raise UsageError(message, ADVICE)
    luma, *chroma = (StridedChannel(each.address, strides_of(each)[1], strides_of(each)[0]) for each in planes)
    if in_pairs:
        pairs = planes[1]
        is_paired = pairs.shape[2:] == (2,)  # in the other layout, blue and red differences alternate along a row
        deep = strides_of(pairs)[2 if is_paired else 1]
        blue = chroma[0] if is_paired else chroma[0]._replace(column_bytes=2 * deep)
        return (luma, blue, blue._replace(address=blue.address + deep)), (width, height)
    return (luma, chroma[0], chroma[1]), (width, height)


def host_array(tensor: DeviceTensor, fetch: Callable[[int, int], NDArray[np.uint8]]) -> NDArray[Any]:
    """Return a contiguous copy on the host; ``fetch`` copies bytes from a device address."""
    strides = strides_of(tensor)
    ends = [(length - 1) * stride for length, stride in zip(tensor.shape, strides, strict=True)]
    before = -sum(min(end, 0) for end in ends)
    size_bytes = before + sum(max(end, 0) for end in ends) + tensor.item_bytes
    samples = fetch(tensor.address - before, size_bytes)
    found: NDArray[Any] = np.ndarray(tensor.shape, f"u{tensor.item_bytes}", samples.data, before, strides)
    return np.ascontiguousarray(found)


def strides_of(tensor: DeviceTensor) -> tuple[int, ...]:
    """Return a tensor's strides in bytes; those of a contiguous tensor if it states none."""
    axes = range(len(tensor.shape))
    return tensor.strides_bytes or tuple(prod(tensor.shape[axis + 1 :]) * tensor.item_bytes for axis in axes)


def _is_tight(tensor: DeviceTensor) -> bool:
    return strides_of(tensor) == strides_of(replace(tensor, strides_bytes=None))


def _found(item: object) -> DeviceInput | None:
    if hasattr(item, "__dlpack_device__"):
        if device_kind(item) == CPU:
            return None
        # DLPack synchronizes with the producer; the array interface of PyNvVideoCodec's frames does not.
        return DeviceInput((device_tensor(item),), _named(_planes(item)))
    if hasattr(item, "__cuda_array_interface__"):
        return DeviceInput((array_tensor(item),), "")
    planes = _planes(item)
    return DeviceInput(tuple(planes), _named(planes)) if planes else None


def _planes(item: object) -> list[DeviceTensor]:
    """Return the planes that an object's ``cuda()`` returns; empty for objects without such a method.

    Also empty for objects with the CUDA array interface: a PyTorch tensor has both, and its ``cuda()`` would copy the
    tensor to a GPU. Raises UsageError: ``cuda()`` fails.
    """
    cuda = getattr(item, "cuda", None)
    if hasattr(item, "__cuda_array_interface__") or not callable(cuda):
        return []
    try:
        given = cuda()
    except Exception as error:  # a user's class may raise any error
        raise UsageError(f"cuda() of a {type(item).__name__} gives no planes: {error}", ADVICE) from error
    return [array_tensor(plane) for plane in (given if isinstance(given, Sequence) else [given])]


def _named(planes: list[DeviceTensor]) -> str:
    """Return FFmpeg's name of the layout of planes (rows, columns, components); "" if the shapes fit none."""
    match [prod(plane.shape[:1]) for plane in planes]:
        case [luma, in_pairs]:
            return _IN_PAIRS.get((luma // max(1, in_pairs), planes[0].item_bytes), "")
        case [luma, blue, _] if planes[0].item_bytes == 1:
            return "yuv444p" if luma == blue else "yuv420p"
    return ""


def _in_bytes(tensor: DeviceTensor) -> DeviceTensor:
    """Return a tensor whose strides are in bytes; PyNvVideoCodec's 16-bit frames state them in samples."""
    tight = prod(tensor.shape[1:])
    in_samples = tensor.item_bytes > 1 and tensor.strides_bytes and tensor.strides_bytes[0] == tight
    return replace(tensor, strides_bytes=None) if in_samples and tensor.shape[0] > 1 else tensor


def _without_ones(tensor: DeviceTensor) -> DeviceTensor:
    shape, strides = tensor.shape, strides_of(tensor)
    while len(shape) > ROWS_AND_COLUMNS and shape[0] == 1:
        shape, strides = shape[1:], strides[1:]
    if len(shape) > ROWS_AND_COLUMNS and shape[2] == 1:
        shape, strides = shape[:2], strides[:2]
    return replace(tensor, shape=shape, strides_bytes=strides)
