"""Pictures for PyNvVideoCodec's encoder, checked here because the encoder reads past the end of small pictures.

Sources: PyNvVideoCodec programming guide, section 2.3, "Encode" (a: bytes, b: CUDA array interface); the CUDA Array
Interface, version 3.
"""

from typing import Any, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import EncoderFailed
from ...encode.profiles import NVENC_PIX_FMTS
from ...surfaces.device_frame import DeviceFrame, DevicePlane, device_planes
from ...surfaces.formats import SurfaceFormat, SurfaceLayout, surface_format
from ...surfaces.host_pictures import packed_surface

SURFACE_NAMES: Final = {
    SurfaceLayout.NV12: "NV12",
    SurfaceLayout.P016: "P010",
    SurfaceLayout.NV16: "NV16",
    SurfaceLayout.P216: "P210",
    SurfaceLayout.YUV444: "YUV444",
    SurfaceLayout.YUV444_16: "YUV444_16BIT",
}
"""``CreateEncoder``'s names of surfaces, which are case-sensitive (programming guide, sections 2.3, 2.4).

docs/nvenc.md says why other names are not used.
"""
_CAI_VERSION: Final = 3
_CODED_BITS: Final = 10
_ADVICE: Final = "Give a picture of exactly the session's size and surface format."


class CudaPlane:
    """One plane as a CUDA array, with the strides that the package requires for chroma pairs and 16 bits."""

    def __init__(self, plane: DevicePlane, sample_bytes: int, components: int) -> None:
        wide = sample_bytes > 1
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (plane.rows, plane.row_bytes // (sample_bytes * components), components),
            "strides": (plane.row_bytes, 2 if wide else components, 1),
            "typestr": "|u2" if wide else "|u1",
            "data": (plane.address, False),
            "version": _CAI_VERSION,
        }


class CudaPlanes:
    """The planes of one picture, in the form that the package reads. ``owner`` keeps the memory alive."""

    def __init__(self, surface: SurfaceFormat, planes: tuple[DevicePlane, ...], owner: object) -> None:
        # For 4:2:2 the package counts samples of chroma, not pairs.
        components = (1, 2) if surface.halved_down else (1,) * len(planes)
        parts = zip(planes, components, strict=True)
        self._planes = [CudaPlane(plane, surface.sample_bytes, count) for plane, count in parts]
        self._owner = owner

    def cuda(self) -> list[CudaPlane]:
        """Return the planes in order; the package calls this method."""
        return self._planes


def host_input(frame: object, surface: SurfaceFormat, width: int, height: int) -> NDArray[np.uint8]:
    """Return a software frame's samples, unchanged, as the bytes of a surface; ``EncoderFailed`` if they do not fit."""
    if not isinstance(frame, VideoFrame):
        message = f"the session takes pictures in host memory, not a {type(frame).__name__}"
        raise EncoderFailed(message, _ADVICE)
    name = frame.format.name
    fits = name in NVENC_PIX_FMTS and surface_format(name) == surface
    if (frame.width, frame.height) != (width, height) or not fits:
        raise _misfit(f"picture of {frame.width}x{frame.height} {name}", surface, width, height)
    found = np.empty(surface.size_bytes(width, height), dtype=np.uint8)
    packed_surface(frame, surface, found)
    return found


def device_input(frame: object, surface: SurfaceFormat, width: int, height: int) -> CudaPlanes:
    """Return a device picture for the package; ``EncoderFailed`` if it has gaps, or another size or format."""
    if not isinstance(frame, DeviceFrame):
        message = f"the session takes pictures in device memory, not a {type(frame).__name__}"
        raise EncoderFailed(message, _ADVICE)
    if frame.bits > _CODED_BITS:
        message = f"NVENC codes at most {_CODED_BITS} bits, not {frame.bits}"
        raise EncoderFailed(message, "Convert to 10 bits, or use a software encoder.")
    planes = device_planes(surface, frame.planes[0].address, width, height)
    sizes = [[(plane.row_bytes, plane.rows) for plane in each] for each in (frame.planes, planes)]
    if frame.layout is not surface.layout or sizes[0] != sizes[1]:
        raise _misfit(f"{frame.layout.value} frame of {frame.width}x{frame.height}", surface, width, height)
    if frame.planes != planes:
        message = "the picture has gaps between its rows or planes, which PyNvVideoCodec does not take"
        raise EncoderFailed(message, "Copy the picture into contiguous memory first.")
    return CudaPlanes(surface, planes, frame)


def _misfit(what: str, surface: SurfaceFormat, width: int, height: int) -> EncoderFailed:
    wanted = f"{SURFACE_NAMES[surface.layout]} surface of {width}x{height}"
    return EncoderFailed(f"a {what} does not fit a {wanted}", _ADVICE)
