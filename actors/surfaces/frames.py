"""A decoded frame as users hold it: its place in the source, its format, and samples on the host or a device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, Final, cast

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import DTypeLike, NDArray

from ...errors import Unsupported
from ..media.values import VideoFormat
from .device_frame import DevicePicture, PictureNotes
from .frames_dlpack import CPU, CUDA, DeviceArray, DeviceOwner
from .host_pictures import plane_rows

_SIDE: Final = 16
"""The side of the picture with which PyAV describes a pixel format."""
_FLOATS: Final = ("f16le", "f16be", "f32le", "f32be")
"""The endings of FFmpeg's names of floating-point formats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Frame:
    """One frame of a source, at its repaired time.

    The samples are on the host or on a GPU of this process, and complete: read them on any stream. The memory lives as
    long as the frame, or a DLPack tensor of the frame. Afterwards the memory is reused once all work of the stream that
    requested the tensor is done; use ``record_stream`` to name other streams that read the memory.

    A frame is a DLPack tensor. On the host, it is the array that ``to_ndarray`` returns. On the device, it is
    two-dimensional, with the rows of all planes one below the other (NV12 and similar formats: chroma in pairs; more
    than 8 bits in the upper bits of 16). ``__cuda_array_interface__`` describes the same memory;
    frames on the host lack it.
    """

    index: int
    """The frame's number among the requested pictures, from 0."""
    ticks: int
    """When the frame is shown, in ticks of ``time_base``, on the source's own clock."""
    time_base: Fraction
    start_ticks: int
    """When the source's first picture is shown, in ticks of ``time_base``."""
    format: VideoFormat
    """The format, with FFmpeg's names; planar even if a surface holds the samples."""
    source_index: int | None = None
    """The frame's number among all pictures of its track, from 0; None if the frame comes from no file."""
    duration_s: Fraction | None = None
    """How long the frame is shown, up to the track's next picture; None if unknown."""
    is_keyframe: bool = False
    """Whether decoding can start at the frame, as its track's index says; False if the frame comes from no file."""
    notes: PictureNotes | None = None
    """NVDEC's notes, if ``NvdecOptions`` requested them."""
    _picture: VideoFrame | DevicePicture = field(repr=False)
    _to_host: Callable[[DevicePicture], VideoFrame] | None = field(default=None, repr=False)

    @property
    def time_s(self) -> Fraction:
        """When the frame is shown, in seconds after the source's first picture."""
        # A product of fractions would take twice as long.
        tick = self.time_base
        return Fraction((self.ticks - self.start_ticks) * tick.numerator, tick.denominator)

    @property
    def width(self) -> int:
        """The frame's width in samples."""
        return self.format.width

    @property
    def height(self) -> int:
        """The frame's height in samples."""
        return self.format.height

    @property
    def pix_fmt(self) -> str:
        """FFmpeg's name of the frame's pixel format."""
        return self.format.pix_fmt

    @property
    def on_device(self) -> bool:
        """Whether the samples are on the GPU."""
        return isinstance(self._picture, DevicePicture)

    @property
    def device_picture(self) -> DevicePicture | None:
        """The picture on the device, as encoder sessions take it; None if the frame is on the host."""
        return self._picture if isinstance(self._picture, DevicePicture) else None

    @property
    def planes(self) -> tuple[NDArray[Any] | DeviceArray, ...]:
        """The planes without padding: NumPy arrays (views if possible) or device arrays; may raise ``Unsupported``."""
        if isinstance(self._picture, DevicePicture):
            return _device_planes(self._picture)
        return plane_arrays(self._picture)

    def record_stream(self, stream: int) -> None:
        """Record that the CUDA stream with this handle also reads the frame's memory.

        Once the frame and its tensors are dropped, the memory is reused only after all work queued in that stream by
        then. CUDA's legacy default stream is 1, the calling thread's default stream is 2, and -1 stands for any stream.
        ``Unsupported`` if the frame is on the host.
        """
        if not isinstance(self._picture, DevicePicture):
            raise Unsupported("a frame on the host is read by no CUDA stream", 'Ask for frames with place="device".')
        _owner(self._picture).used_by(stream)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the frame's DLPack tensor; ``strides``, ``dtype`` and ``nbytes`` describe the same tensor."""
        return self._tensor.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance in bytes between neighbours on each axis."""
        tensor = self._tensor
        if isinstance(tensor, DeviceArray):
            return tuple(prod(tensor.shape[axis + 1 :]) * tensor.item_bytes for axis in range(len(tensor.shape)))
        return tensor.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the samples."""
        tensor = self._tensor
        return np.dtype(f"u{tensor.item_bytes}") if isinstance(tensor, DeviceArray) else tensor.dtype

    @property
    def nbytes(self) -> int:
        """How many bytes the samples take."""
        return self._tensor.nbytes

    @property
    def _tensor(self) -> NDArray[Any] | DeviceArray:
        picture = self._picture
        return _rows(picture) if isinstance(picture, DevicePicture) else _one_array(picture)

    def to_video_frame(self) -> VideoFrame:
        """Return a PyAV frame, which shares the memory of a frame on the host, or is a copy of a frame on the device.

        ``DeviceError`` if the copy failed.
        """
        if isinstance(self._picture, VideoFrame):
            found = self._picture
        elif self._to_host is not None:
            found = self._to_host(self._picture)
        else:
            raise TypeError("a frame on a device came without a way to the host")
        found.pts, found.time_base = self.ticks, self.time_base
        return found

    def to_ndarray(self) -> NDArray[Any]:
        """Return the samples as one NumPy array, as ``VideoFrame.to_ndarray`` does (``rgb24``: rows, columns, 3).

        Raises:
            Unsupported: PyAV has no such array, for example for 4:2:0 with odd sides, or ``yuv420p12le``.
            DeviceError: the copy from the device failed.
        """
        return _one_array(self.to_video_frame())

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Return the array of ``to_ndarray``, for ``np.asarray(frame)``: always a copy, even on the host.

        Raises:
            ValueError: ``copy`` is False.
            Unsupported: as for ``to_ndarray``.
        """
        if copy is False:
            raise ValueError("the samples of a frame become one array only by a copy: its planes are views")
        found = self.to_ndarray()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kind, number) of the device that holds the frame (DLDeviceType)."""
        if isinstance(self._picture, DevicePicture):
            return CUDA, device_of(self._picture)
        return CPU, 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule (Python array API standard); ``BufferError`` if the request cannot be met."""
        try:
            exporter: Any = self._tensor
        except Unsupported as error:
            raise BufferError(error.message) from error
        found: object = exporter.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface (version 3) of a frame on the device; ``AttributeError`` for a frame on the host."""
        if not isinstance(self._picture, DevicePicture):
            raise AttributeError("the frame is on the host")  # noqa: TRY004 - the interface must look absent
        return _rows(self._picture).__cuda_array_interface__


def device_of(picture: DevicePicture) -> int:
    """Return the ordinal of the CUDA device that holds a decoded or copied picture."""
    return _owner(picture).device


def frame_bytes(picture: VideoFrame | DevicePicture) -> int:
    """Return how much memory a picture takes, in bytes."""
    if isinstance(picture, DevicePicture):
        return picture.format.size_bytes(picture.width, picture.height)
    return sum(plane.buffer_size for plane in picture.planes)


def plane_arrays(picture: VideoFrame) -> tuple[NDArray[Any], ...]:
    """Return a picture's planes as arrays (rows, columns), or (rows, columns, components) if components alternate.

    ``Unsupported`` if samples share bytes, or the components in a plane have different numbers of samples.
    """
    found = []
    for number, (kind, count) in _plane_kinds(picture.format.name):
        plane = picture.planes[number]
        rows = plane_rows(plane, kind)[:, : plane.width * count]
        found.append(rows if count == 1 else rows.reshape(plane.height, plane.width, count))
    return tuple(found)


@cache
def _plane_kinds(pix_fmt: str) -> tuple[tuple[int, tuple[np.dtype[Any], int]], ...]:
    """Return for each plane: its number, the type of its samples, and how many components alternate."""
    layout = PixelFormat(pix_fmt, _SIDE, _SIDE)
    bits = sum(8 * _sample_bytes(component.bits) for component in layout.components)
    if len({component.plane for component in layout.components}) == 1 and bits != layout.padded_bits_per_pixel:
        message = f"the planes of {layout.name} are not arrays of samples"
        raise Unsupported(message, "Ask for another pix_fmt, such as rgb24, or use to_video_frame.")
    order = ">" if pix_fmt.endswith("be") else "<"
    kind = "f" if pix_fmt.endswith(_FLOATS) else "u"
    held: dict[int, list[int]] = {}
    for component in layout.components:
        held.setdefault(component.plane, []).append(component.bits)
    return tuple(
        (number, (np.dtype(f"{order}{kind}{_sample_bytes(max(each))}"), len(each)))
        for number, each in sorted(held.items())
    )


def _one_array(picture: VideoFrame) -> NDArray[Any]:
    layout = f"{picture.width}x{picture.height} {picture.format.name}"
    try:
        array: object = picture.to_ndarray()  # PyAV types the result as one array, but pal8 gives two arrays
    except (AssertionError, ValueError) as error:  # PyAV asserts even sides; ValueError means an unknown format
        message = f"a frame of {layout} is not one array"
        raise Unsupported(message, "Take the frame's planes, or ask for another pix_fmt, such as rgb24.") from error
    if not isinstance(array, np.ndarray):
        raise Unsupported(f"a frame of {layout} is more than one array", "Ask for another pix_fmt, such as rgb24.")
    return array


def _sample_bytes(bits: int) -> int:
    return (bits + 7) // 8


def _rows(picture: DevicePicture) -> DeviceArray:
    frame, item_bytes = picture.frame, picture.format.sample_bytes
    rows = sum(plane.rows for plane in frame.planes)
    return DeviceArray(picture.address, (rows, frame.planes[0].row_bytes // item_bytes), item_bytes, _owner(picture))


def _device_planes(picture: DevicePicture) -> tuple[DeviceArray, ...]:
    frame, item_bytes = picture.frame, picture.format.sample_bytes
    found = []
    for number, plane in enumerate(frame.planes):
        columns = plane.row_bytes // item_bytes
        in_pairs = number and picture.format.halved_across
        shape = (plane.rows, columns // 2, 2) if in_pairs else (plane.rows, columns)
        found.append(DeviceArray(plane.address, shape, item_bytes, _owner(picture)))
    return tuple(found)


def _owner(picture: DevicePicture) -> DeviceOwner:
    return cast("DeviceOwner", picture.owner)
