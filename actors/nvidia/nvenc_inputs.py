"""Pictures as PyNvVideoCodec's encoder takes them, checked by us: it checks little, and reads past what is too small.

From the host it takes bytes in one piece, of any length; from the device planes by the CUDA array interface, tight and
one behind the other, with strides as it alone writes them. Every other form ends as one of these two here. Sources:
PyNvVideoCodec programming guide, section 2.3, "Encode" (a: bytes, b: CUDA array interface, c: NCHW tensor); the CUDA
Array Interface, version 3; DLPack.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import EncoderFailed, Unsupported
from ..frames_dlpack import CPU, CUDA
from .device_frame import DeviceFrame
from .host_pictures import plane_rows
from .nvenc_dlpack import DeviceTensor, array_tensor, device_kind, device_tensor
from .nvenc_surfaces import NvencSurface, PlaneShape, surface_for

__all__ = ["CudaPlane", "CudaPlanes", "TimedPicture", "device_input", "host_input", "packed"]

_CAI_VERSION: Final = 3
_ADVICE: Final = "Give a picture of exactly the session's size and surface format."
_GAPS: Final = "the picture has gaps between its rows or planes, which PyNvVideoCodec does not take"
_COPY: Final = "Copy it into one piece first."
_AS_IT_IS: Final = {
    "nv12": NvencSurface.NV12,
    "nv16": NvencSurface.NV16,
    "p010le": NvencSurface.P010,
    "p210le": NvencSurface.P210,
    "bgra": NvencSurface.ARGB,
    "rgba": NvencSurface.ABGR,
}
"""Pixel formats of FFmpeg that lie in memory as the surface does."""
_PACKED_SHIFT: Final = 6  # 10 bits into the upper bits of 16


@dataclass(frozen=True, slots=True, eq=False)
class TimedPicture:
    """A picture and when it is shown, for pictures that carry no time of their own.

    ``pixels`` is, from the host: anything with the buffer protocol (``bytes``, ``memoryview``, a NumPy array of 8 or
    16 bit samples), holding the planes one behind the other; a ``VideoFrame``; a tensor of DLPack's on the host. From
    the device: a ``DeviceFrame``, an object whose ``cuda()`` gives its planes by the CUDA array interface (so does a
    decoded frame of the package), an object with ``__cuda_array_interface__`` or ``__dlpack__`` that holds the rows of
    all planes, alone or as an NCHW tensor with N and C of 1.
    """

    pixels: object
    pts_ticks: int


class CudaPlane:
    """One plane on the device by the CUDA array interface, with the strides that the package insists on.

    It wants those of 16-bit samples and of pairs in its own way (the last always 1), and refuses all others.
    """

    def __init__(self, address: int, shape: PlaneShape) -> None:
        wide = shape.component_bytes == 2  # noqa: PLR2004 - 16 bits
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (shape.rows, shape.columns, shape.components),
            "strides": (shape.row_bytes, 2 if wide else shape.components, 1),
            "typestr": "|u2" if wide else "|u1",
            "data": (address, False),
            "version": _CAI_VERSION,
        }


class CudaPlanes:
    """The planes of one picture, behind the method that the package looks for. ``owner`` keeps the memory alive."""

    def __init__(self, address: int, surface: NvencSurface, width: int, height: int, owner: object) -> None:
        self._planes: list[CudaPlane] = []
        self._is_rgb = surface.is_rgb
        self._owner = owner
        for shape in surface.planes(width, height):
            self._planes.append(CudaPlane(address, shape))
            address += shape.size_bytes

    def cuda(self) -> list[CudaPlane] | CudaPlane:
        """Return the planes in order; of RGB, which has one, that one alone."""
        return self._planes[0] if self._is_rgb else self._planes


def host_input(pixels: object, surface: NvencSurface, width: int, height: int) -> NDArray[np.uint8]:
    """Return a picture in host memory as the bytes that the package reads.

    No copy is made of a buffer that is in one piece.

    Raises:
        EncoderFailed: the picture is not in host memory, or not of exactly that size and format.
    """
    if isinstance(pixels, VideoFrame):
        return packed(pixels, surface, width, height)
    array = _host_array(pixels)
    if array.dtype.itemsize not in (1, 2) or array.dtype.kind not in "uVbiSc":
        message = f"samples of {array.dtype} are no {surface.value} surface"
        raise EncoderFailed(message, _ADVICE)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    _check_bytes(flat.nbytes, surface, width, height)
    return flat


def _host_array(pixels: object) -> NDArray[Any]:
    if hasattr(pixels, "__dlpack_device__") and not isinstance(pixels, np.ndarray):
        if device_kind(pixels) != CPU:
            message = "the session reads pictures from the host, and this one is on a device"
            raise EncoderFailed(message, "Open the session for device input.")
        return np.from_dlpack(pixels)  # type: ignore[arg-type]
    if isinstance(pixels, DeviceFrame) or hasattr(pixels, "cuda") or hasattr(pixels, "__cuda_array_interface__"):
        message = "the session reads pictures from the host, and this one is on a device"
        raise EncoderFailed(message, "Open the session for device input.")
    if isinstance(pixels, np.ndarray):
        return pixels
    try:
        return np.frombuffer(pixels, dtype=np.uint8)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, BufferError) as error:
        message = f"a {type(pixels).__name__} is no picture: {error}"
        raise EncoderFailed(message, _ADVICE) from None


def packed(frame: VideoFrame, surface: NvencSurface, width: int, height: int) -> NDArray[np.uint8]:
    """Return a software frame's samples as a surface's bytes, exactly: nothing is converted but their order.

    Raises:
        EncoderFailed: the frame's size or pixel format is not the surface's.
    """
    if (frame.width, frame.height) != (width, height) or not _holds(surface, frame.format.name):
        message = f"a picture of {frame.width}x{frame.height} {frame.format.name} is no {surface.value} surface of "
        message += f"{width}x{height}"
        raise EncoderFailed(message, _ADVICE)
    planes = _samples(frame)
    shapes = surface.planes(width, height)
    wide = shapes[0].component_bytes == 2  # noqa: PLR2004 - 16 bits
    output = np.empty(surface.frame_bytes(width, height), dtype=np.uint8)
    samples = output.view("<u2") if wide else output
    if len(planes) == len(shapes):
        _put_planes(samples, planes)
    else:
        size = planes[0].size
        samples[:size] = planes[0].reshape(-1)
        samples[size::2], samples[size + 1 :: 2] = planes[1].reshape(-1), planes[2].reshape(-1)
    if wide and frame.format.name not in _AS_IT_IS:
        samples <<= _PACKED_SHIFT
    return output


def _holds(surface: NvencSurface, pix_fmt: str) -> bool:
    if pix_fmt in _AS_IT_IS:
        return surface is _AS_IT_IS[pix_fmt]
    if surface is NvencSurface.YUV420:
        return pix_fmt == "yuv420p"
    if surface is NvencSurface.YUV444_10BIT:
        return pix_fmt == "yuv444p10le"
    try:
        return surface is surface_for(pix_fmt)
    except Unsupported:
        return False


def _samples(frame: VideoFrame) -> list[NDArray[Any]]:
    """Return each plane's rows without the padding behind them."""
    dtype = "<u2" if frame.format.components[0].bits > 8 else "u1"  # noqa: PLR2004 - a byte
    planes = frame.planes
    # One plane holds four components a pixel, the second of two holds pairs.
    components = {1: (4,), 2: (1, 2)}.get(len(planes), (1,) * len(planes))
    found = []
    for plane, count in zip(planes, components, strict=True):
        found.append(plane_rows(plane, np.dtype(dtype))[:, : plane.width * count])
    return found


def _put_planes(samples: NDArray[Any], planes: Sequence[NDArray[Any]]) -> None:
    at = 0
    for plane in planes:
        samples[at : at + plane.size] = plane.reshape(-1)
        at += plane.size


def device_input(pixels: object, surface: NvencSurface, width: int, height: int) -> CudaPlanes:
    """Return a picture in device memory as the package takes it: planes, tight and in order.

    Raises:
        EncoderFailed: the picture is not in device memory, not tight, or not of exactly that size and format.
    """
    if isinstance(pixels, DeviceFrame):
        return _from_device_frame(pixels, surface, width, height)
    if hasattr(pixels, "__cuda_array_interface__"):
        return _from_rows(array_tensor(pixels), surface, width, height)
    if hasattr(pixels, "__dlpack_device__") and device_kind(pixels) != CUDA:
        message = "the session reads pictures from the device, and this one is on the host"
        raise EncoderFailed(message, "Open the session for host input.")
    if callable(getattr(pixels, "cuda", None)):
        return _from_planes(pixels, surface, width, height)
    if hasattr(pixels, "__dlpack__"):
        return _from_rows(device_tensor(pixels), surface, width, height)
    message = f"a {type(pixels).__name__} is no picture on a device"
    raise EncoderFailed(message, "Open the session for host input, or give a device frame, planes or a tensor.")


def _from_device_frame(frame: DeviceFrame, surface: NvencSurface, width: int, height: int) -> CudaPlanes:
    shapes = surface.planes(width, height)
    try:
        fits = surface_for(frame.layout, bits=frame.bits) is surface
    except Unsupported as error:
        raise EncoderFailed(error.message, error.next_step) from None
    found = tuple((plane.row_bytes, plane.rows) for plane in frame.planes)
    if not fits or found != tuple((shape.row_bytes, shape.rows) for shape in shapes):
        message = f"a {frame.layout.value} frame of {frame.width}x{frame.height} is no {surface.value} surface of "
        message += f"{width}x{height}"
        raise EncoderFailed(message, _ADVICE)
    address = frame.planes[0].address
    for plane, shape in zip(frame.planes, shapes, strict=True):
        if plane.address != address or plane.pitch_bytes != shape.row_bytes:
            raise EncoderFailed(_GAPS, _COPY)
        address += shape.size_bytes
    return CudaPlanes(frame.planes[0].address, surface, width, height, frame)


def _from_planes(pixels: Any, surface: NvencSurface, width: int, height: int) -> CudaPlanes:  # noqa: ANN401
    """Take an object whose ``cuda()`` gives planes, whatever strides it writes for them; RGB may be one plane."""
    given = pixels.cuda()
    planes = [array_tensor(plane) for plane in (given if isinstance(given, Sequence) else [given])]
    shapes = surface.planes(width, height)
    found = [(prod(plane.shape), plane.item_bytes) for plane in planes]
    if found != [(shape.size_bytes // shape.component_bytes, shape.component_bytes) for shape in shapes]:
        message = f"planes of {[plane.shape for plane in planes]} with samples of {planes[0].item_bytes} bytes are no "
        message += f"{surface.value} surface of {width}x{height}"
        raise EncoderFailed(message, _ADVICE)
    address = planes[0].address
    for plane, shape in zip(planes, shapes, strict=True):
        # The package's own frames write 16-bit strides in samples, not in bytes.
        row_bytes = plane.strides_bytes[0] if plane.strides_bytes else shape.row_bytes
        if plane.address != address or row_bytes not in (shape.row_bytes, shape.row_bytes // shape.component_bytes):
            raise EncoderFailed(_GAPS, _COPY)
        address += shape.size_bytes
    return CudaPlanes(planes[0].address, surface, width, height, pixels)


def _from_rows(tensor: DeviceTensor, surface: NvencSurface, width: int, height: int) -> CudaPlanes:
    """Take a tensor whose last two axes are the rows of all planes; axes before them must be of length 1."""
    planes = surface.planes(width, height)
    columns = planes[0].columns * planes[0].components
    wanted = (surface.frame_bytes(width, height) // planes[0].row_bytes, columns)
    shape = tensor.shape
    if shape[-2:] != wanted or set(shape[:-2]) - {1} or tensor.item_bytes != planes[0].component_bytes:
        message = f"a tensor of {shape} with samples of {tensor.item_bytes} bytes is no {surface.value} surface of "
        message += f"{width}x{height}: {wanted} with {planes[0].component_bytes}"
        raise EncoderFailed(message, _ADVICE)
    if not _is_tight(shape, tensor.strides_bytes, tensor.item_bytes):
        raise EncoderFailed(_GAPS, _COPY)
    return CudaPlanes(tensor.address, surface, width, height, tensor)


def _is_tight(shape: tuple[int, ...], strides: tuple[int, ...] | None, item_bytes: int) -> bool:
    if strides is None:
        return True
    expected = item_bytes
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True


def _check_bytes(found: int, surface: NvencSurface, width: int, height: int) -> None:
    wanted = surface.frame_bytes(width, height)
    if found != wanted:
        message = f"a buffer of {found} bytes is no {surface.value} surface of {width}x{height}: that has {wanted}"
        raise EncoderFailed(message, _ADVICE)
