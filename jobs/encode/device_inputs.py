"""Arrays on the GPU that users hand to ``encode``: what NVENC reads where it lies, and what comes to the host.

Sources: the CUDA Array Interface, version 3, "Synchronization"; the Python array API standard, ``__dlpack__``;
PyNvVideoCodec programming guide, section 2.3, "Encode" (b: objects whose ``cuda()`` gives planes).
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any, Final

from ...actors.surfaces.device_frame import DevicePicture, tight_picture
from ...actors.surfaces.device_tensor import DeviceTensor, array_tensor, device_kind, device_tensor
from ...actors.surfaces.formats import SurfaceLayout, surface_format
from ...actors.surfaces.frames_dlpack import CPU
from ...errors import EncoderFailed, UsageError

_ADVICE: Final = "docs/frames.md lists what can be encoded."
_SURFACES: Final = {
    "nv12": (SurfaceLayout.NV12, "yuv420p"),
    "p010le": (SurfaceLayout.P016, "yuv420p10le"),
    "nv16": (SurfaceLayout.NV16, "yuv422p"),
    "p210le": (SurfaceLayout.P216, "yuv422p10le"),
    "yuv444p": (SurfaceLayout.YUV444, "yuv444p"),
}
"""How rows of all planes on a device are called, and FFmpeg's planar format of the same samples."""
_IN_PAIRS: Final = {(2, 1): "nv12", (2, 2): "p010le", (1, 1): "nv16", (1, 2): "p210le"}
"""By rows of luma for one of chroma, and the bytes of a sample."""
_ROWS_A_PICTURE: Final = {"4:2:0": Fraction(3, 2), "4:2:2": Fraction(2), "4:4:4": Fraction(3)}


def find_tensor(item: Any) -> tuple[DeviceTensor, str] | None:  # noqa: ANN401 - whatever a user gives
    """Return where an array lies on the device, and its layout where it says that; None for what is not there.

    Leading axes of length 1 are left out. The planes of an object with ``cuda()`` become the rows of one array.

    Raises:
        UsageError: it does not say where it lies, has gaps, or holds no whole numbers.
    """
    try:
        found = _found(item)
    except EncoderFailed as error:
        raise UsageError(error.message, error.next_step) from error
    if found is None:
        return None
    tensor, pix_fmt = found
    _check_samples(tensor)
    _check_tight(tensor)
    shape = tensor.shape
    while len(shape) > 2 and shape[0] == 1:  # noqa: PLR2004 - rows and columns
        shape = shape[1:]
    return replace(tensor, shape=shape, strides_bytes=None), pix_fmt


def is_rows(pix_fmt: str) -> bool:
    """Return whether that layout is rows of all planes as NVENC reads them from the device; others come to the host."""
    return pix_fmt in _SURFACES


def device_picture(tensor: DeviceTensor, pix_fmt: str) -> DevicePicture:
    """Return rows of all planes as a picture that NVENC reads where it lies.

    Raises:
        UsageError: they are none of that layout.
    """
    layout, planar = _SURFACES[pix_fmt]
    format_ = surface_format(planar)
    if format_ is None or format_.layout is not layout or format_.sample_bytes != tensor.item_bytes:
        raise UsageError(f"samples of {tensor.item_bytes} bytes are not {pix_fmt}", _ADVICE)
    return tight_picture(format_, tensor.address, picture_size(tensor.shape, pix_fmt), planar, tensor)


def picture_size(shape: tuple[int, ...], pix_fmt: str) -> tuple[int, int]:
    """Return the (width, height) of a picture whose planes' rows lie below each other, in a layout of NVENC's.

    Raises:
        UsageError: there is none of that shape.
    """
    format_ = surface_format(_SURFACES[pix_fmt][1])
    rows, columns = shape if len(shape) == 2 else (0, 0)  # noqa: PLR2004 - rows and columns
    height = rows / _ROWS_A_PICTURE["4:2:0" if format_ is None else format_.chroma]
    if height.denominator != 1 or not min(rows, columns) or not (format_ and format_.holds(columns, int(height))):
        raise UsageError(f"an array of {shape} is not a {pix_fmt} picture: its sides do not fit", _ADVICE)
    return columns, int(height)


def _found(item: Any) -> tuple[DeviceTensor, str] | None:  # noqa: ANN401 - whatever a user gives
    if hasattr(item, "__dlpack_device__"):
        if device_kind(item) == CPU:
            return None
        # It orders the producer's work, which the array interface of PyNvVideoCodec's frames does not.
        return device_tensor(item), _named(_planes(item))
    if hasattr(item, "__cuda_array_interface__"):
        return array_tensor(item), ""
    planes = _planes(item)
    return (_joined(planes), _named(planes)) if planes else None


def _planes(item: Any) -> list[DeviceTensor]:  # noqa: ANN401 - whatever a user gives
    """Return the planes of an object whose ``cuda()`` gives them; PyTorch's does something else."""
    if hasattr(item, "__cuda_array_interface__") or not callable(getattr(item, "cuda", None)):
        return []
    try:
        given = item.cuda()
    except Exception as error:  # whatever a user's class raises
        raise UsageError(f"cuda() of a {type(item).__name__} gives no planes: {error}", _ADVICE) from error
    return [array_tensor(plane) for plane in (given if isinstance(given, Sequence) else [given])]


def _named(planes: list[DeviceTensor]) -> str:
    """Return FFmpeg's name of planes of (rows, columns, components); "" where their number does not tell."""
    rows = [prod(plane.shape[:1]) for plane in planes]
    if len(rows) == 2:  # noqa: PLR2004 - luma, and chroma in pairs
        return _IN_PAIRS.get((rows[0] // max(1, rows[1]), planes[0].item_bytes), "")
    if len(rows) == 3 and planes[0].item_bytes == 1:  # noqa: PLR2004 - Y, U and V
        return "yuv444p" if rows[0] == rows[1] else "yuv420p"
    return ""


def _joined(planes: list[DeviceTensor]) -> DeviceTensor:
    """Return planes that lie one behind the other as the rows of one array; a packed one stays as it is."""
    first = planes[0]
    for plane in planes:
        _check_samples(plane)
    columns = prod(first.shape[1:2])
    samples = sum(prod(plane.shape) for plane in planes)
    address = first.address
    for plane in planes:
        tight = prod(plane.shape[1:])
        # The package's own frames write strides of 16-bit samples in samples, and not in bytes.
        is_tight = not plane.strides_bytes or plane.strides_bytes[0] in (tight, tight * plane.item_bytes)
        if plane.address != address or plane.item_bytes != first.item_bytes or not is_tight or samples % columns:
            message = f"planes of {[each.shape for each in planes]} have gaps in them or between them"
            raise UsageError(message, "Copy them into one piece first.")
        address += prod(plane.shape) * plane.item_bytes
    is_packed = len(planes) == 1 and prod(first.shape[2:]) > 1
    shape = first.shape if is_packed else (samples // columns, columns)
    streams = tuple({stream for plane in planes for stream in plane.streams})
    return replace(first, shape=shape, strides_bytes=None, owner=planes, streams=streams)


def _check_samples(tensor: DeviceTensor) -> None:
    if min(tensor.shape, default=0) < 1:
        raise UsageError(f"a tensor of {tensor.shape} holds no picture", _ADVICE)


def _check_tight(tensor: DeviceTensor) -> None:
    expected = tensor.item_bytes
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.strides_bytes or ()), strict=False):
        if length > 1 and stride != expected:
            message = f"a tensor of {tensor.shape} with strides of {tensor.strides_bytes} bytes has gaps"
            raise UsageError(message, "Copy it into one piece first (contiguous()).")
        expected *= length
