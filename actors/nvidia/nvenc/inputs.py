"""Pictures as PyNvVideoCodec's encoder takes them, checked by us: it checks little, and reads past what is too small.

From the host it takes bytes in one piece, of any length; from the device planes by the CUDA array interface, tight and
one behind the other, with strides as it alone writes them. Sources: PyNvVideoCodec programming guide, section 2.3,
"Encode" (a: bytes, b: CUDA array interface); the CUDA Array Interface, version 3.
"""

from typing import Any, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import EncoderFailed, Unsupported
from ...settle.nvenc_surfaces import NvencSurface, PlaneShape, surface_for
from ...surfaces.device_frame import DeviceFrame
from ...surfaces.formats import SurfaceLayout, surface_format
from ...surfaces.host_pictures import packed_surface

__all__ = ["CudaPlane", "CudaPlanes", "device_input", "host_input"]

_CAI_VERSION: Final = 3
_BY_LAYOUT: Final = {
    SurfaceLayout.NV12: NvencSurface.NV12,
    SurfaceLayout.P016: NvencSurface.P010,
    SurfaceLayout.NV16: NvencSurface.NV16,
    SurfaceLayout.P216: NvencSurface.P210,
    SurfaceLayout.YUV444: NvencSurface.YUV444,
    SurfaceLayout.YUV444_16: NvencSurface.YUV444_16BIT,
}
_CODED_BITS: Final = 10
_ADVICE: Final = "Give a picture of exactly the session's size and surface format."


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
        self._owner = owner
        for shape in surface.planes(width, height):
            self._planes.append(CudaPlane(address, shape))
            address += shape.size_bytes

    def cuda(self) -> list[CudaPlane]:
        """Return the planes in order."""
        return self._planes


def host_input(frame: object, surface: NvencSurface, width: int, height: int) -> NDArray[np.uint8]:
    """Return a software frame's samples as a surface's bytes, exactly: nothing is converted but their order.

    Raises:
        EncoderFailed: it is none, or its size or pixel format is not the surface's.
    """
    if not isinstance(frame, VideoFrame):
        message = f"the session reads pictures from the host, and a {type(frame).__name__} is not there"
        raise EncoderFailed(message, _ADVICE)
    format_ = surface_format(frame.format.name)
    if (frame.width, frame.height) != (width, height) or format_ is None or not _holds(surface, frame.format.name):
        message = f"a picture of {frame.width}x{frame.height} {frame.format.name} is no {surface.value} surface of "
        message += f"{width}x{height}"
        raise EncoderFailed(message, _ADVICE)
    found = np.empty(surface.frame_bytes(width, height), dtype=np.uint8)
    packed_surface(frame, format_, found)
    return found


def _holds(surface: NvencSurface, pix_fmt: str) -> bool:
    try:
        return surface is surface_for(pix_fmt)
    except Unsupported:
        return False


def device_input(frame: object, surface: NvencSurface, width: int, height: int) -> CudaPlanes:
    """Return a picture in device memory as the package takes it: planes, tight and in order.

    Raises:
        EncoderFailed: the picture is not in device memory, not tight, or not of exactly that size and format.
    """
    if not isinstance(frame, DeviceFrame):
        message = f"the session reads pictures from the device, and a {type(frame).__name__} is not there"
        raise EncoderFailed(message, _ADVICE)
    shapes = surface.planes(width, height)
    if frame.bits > _CODED_BITS:
        message = f"NVENC codes {_CODED_BITS} bits at most, not {frame.bits}"
        raise EncoderFailed(message, "Convert to 10 bits, or use a software encoder.")
    found = tuple((plane.row_bytes, plane.rows) for plane in frame.planes)
    if _BY_LAYOUT[frame.layout] is not surface or found != tuple((shape.row_bytes, shape.rows) for shape in shapes):
        message = f"a {frame.layout.value} frame of {frame.width}x{frame.height} is no {surface.value} surface of "
        message += f"{width}x{height}"
        raise EncoderFailed(message, _ADVICE)
    address = frame.planes[0].address
    for plane, shape in zip(frame.planes, shapes, strict=True):
        if plane.address != address or plane.pitch_bytes != shape.row_bytes:
            message = "the picture has gaps between its rows or planes, which PyNvVideoCodec does not take"
            raise EncoderFailed(message, "Copy it into one piece first.")
        address += shape.size_bytes
    return CudaPlanes(frame.planes[0].address, surface, width, height, frame)
