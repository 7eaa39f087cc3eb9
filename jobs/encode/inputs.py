"""Reads every kind of picture that ``encode`` accepts into one type, with its place in memory and its time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from numpy.typing import NDArray

from ...actors.device.streams import HeldPicture
from ...actors.media.values import Colour, VideoFormat
from ...actors.segment.filtering import FilterChain, FilterSettings
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.device_tensor import DeviceTensor
from ...actors.surfaces.frames import Frame, device_of, plane_arrays
from ...actors.surfaces.strided import StridedPicture
from ...errors import Unsupported, UsageError
from .device_inputs import (
    ADVICE,
    ROWS_AND_COLUMNS,
    WITH_CHANNELS,
    DeviceInput,
    device_picture,
    find_tensor,
    is_rows,
    picture_size,
    strided_picture,
)
from .request import EncodeFrame

_COLORSPACES: Final = {1: Colorspace.ITU709, 6: Colorspace.ITU601, 9: Colorspace.BT2020}
_EXACT: Final = (
    Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.BITEXACT
)
_CHANNELS: Final = {3: "rgb24", 4: "rgba"}
_BY_BYTES: Final = {1: "nv12", 2: "p010le"}


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """One picture of a caller, read into one form, with its time and the caller's requests."""

    pixels: VideoFrame | DevicePicture
    format: VideoFormat  #: its frame rate is only a default unless ``states_rate`` is set
    time_s: Fraction | None
    ticks: tuple[int, Fraction] | None = None  #: ``time_s`` in ticks, and the time base, if the caller gave ticks
    streams: tuple[int, ...] | None = None  #: CUDA streams that write a caller's GPU memory; None for other memory
    from_gpu: bool = False
    device: int | None = None  #: the GPU from which the picture came, if known
    asked: EncodeFrame | None = None  #: the caller's requests for this picture
    states_rate: bool = False

    def with_keyframe(self) -> "Offered":
        """Return the same picture as a keyframe."""
        return replace(self, asked=replace(self.asked or EncodeFrame(None), keyframe=True))

    @property
    def shape(self) -> tuple[int, int, str, bool]:
        """The properties that all pictures of a file share: width, height, pixel format and place."""
        on_device = isinstance(self.pixels, DevicePicture)
        return self.format.width, self.format.height, self.format.pix_fmt, on_device


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReader:
    """Reads the items that a caller offers (arrays, frames, tensors, bytes) as pictures."""

    pix_fmt: str | None  #: FFmpeg's name of the layout of arrays; if None, the shape decides
    size: tuple[int, int] | None  #: (width, height) of raw bytes
    frame_rate: Fraction  #: the nominal rate of pictures that state no rate
    fetch: Callable[[DeviceTensor], NDArray[Any]]  #: copies an array from the device to the host
    #: copies an array on the device, without padding; returns None if it cannot
    pack: Callable[[StridedPicture, DeviceInput], DevicePicture | None] = lambda _, __: None
    rgb: Colour | None = None  #: the colour to which the device converts RGB; None if the host converts it

    def read(self, item: object) -> Offered:
        """Read a picture, (picture, seconds), or an ``EncodeFrame``.

        Raises UsageError: the item is none of these; DeviceError.
        """
        if isinstance(item, EncodeFrame):
            offered = replace(self.read(item.picture), asked=item)
            return offered if item.time_s is None else replace(offered, time_s=item.time_s, ticks=None)
        if isinstance(item, tuple) and len(item) == 2:  # noqa: PLR2004 - a picture and its time
            offered, seconds = self.read(item[0]), item[1]
            try:
                return replace(offered, time_s=Fraction(seconds), ticks=None)
            except (TypeError, ValueError, ArithmeticError) as error:
                message = f"{seconds!r} is not a time in seconds: {error}"
                raise UsageError(message, "Give (picture, Fraction).") from None
        if isinstance(item, Frame):
            pixels = item.device_picture or item.to_video_frame()
            ticks = item.ticks, item.time_base
            device = device_of(pixels) if isinstance(pixels, DevicePicture) else None
            return Offered(
                pixels, item.format, item.time_s, ticks, from_gpu=item.on_device, device=device, states_rate=True
            )
        if isinstance(item, HeldPicture):
            item = item.read()
            if isinstance(item, DevicePicture):
                return replace(self._of_picture(item), device=device_of(item))
        found = find_tensor(item)
        if found is not None:
            return self._of_device(found)
        return self._of_video_frame(item if isinstance(item, VideoFrame) else self._of_array(item))

    def _of_device(self, found: DeviceInput) -> Offered:
        name = self.pix_fmt or found.pix_fmt or _guessed(found.shape, found.item_bytes)
        strided = strided_picture(found, name, None if self.rgb is None else self.rgb.matrix)
        is_tight = strided is not None and strided.is_tight
        picture = None
        if strided is not None:
            picture = device_picture(strided) if is_tight else self.pack(strided, found)
        if strided is None or picture is None:
            return replace(self._of_video_frame(self._fetched(found, name)), from_gpu=True)
        colour = Colour() if strided.matrix is None or self.rgb is None else self.rgb
        return replace(
            self._of_picture(picture, colour), streams=found.streams if is_tight else None, device=found.device
        )

    def _of_picture(self, picture: DevicePicture, colour: Colour | None = None) -> Offered:
        size = picture.width, picture.height
        format_ = VideoFormat(*size, picture.pix_fmt, self.frame_rate, colour=colour or Colour())
        return Offered(picture, format_, None, from_gpu=True)

    def _fetched(self, found: DeviceInput, name: str) -> VideoFrame:
        arrays = [self.fetch(plane) for plane in found.planes]
        if len(arrays) == 1 and not (arrays[0].ndim == ROWS_AND_COLUMNS and is_rows(name)):
            return _framed(arrays[0], name)
        size = picture_size(found.shape, name)
        return _raw(np.concatenate([array.reshape(-1) for array in arrays]), name, size)

    def _of_video_frame(self, frame: VideoFrame) -> Offered:
        colour = Colour(
            range=int(frame.color_range),
            primaries=int(frame.color_primaries),
            transfer=int(frame.color_trc),
            matrix=int(frame.colorspace),
        )
        format_ = VideoFormat(frame.width, frame.height, frame.format.name, self.frame_rate, colour=colour)
        if frame.pts is None or not frame.time_base:
            return Offered(frame, format_, None)
        return Offered(frame, format_, frame.pts * Fraction(frame.time_base), (frame.pts, Fraction(frame.time_base)))

    def _of_array(self, item: Any) -> VideoFrame:  # noqa: ANN401 - anything that may be an array
        try:
            if isinstance(item, bytes | bytearray | memoryview):
                item = np.frombuffer(item, dtype=np.uint8)
            array = item if isinstance(item, np.ndarray) else np.from_dlpack(item)
        except (AttributeError, TypeError, ValueError, BufferError, RuntimeError) as error:
            raise UsageError(f"a {type(item).__name__} is not a picture: {error}", ADVICE) from None
        if array.ndim == 1:
            if self.size is None:
                message = f"raw video of {array.nbytes} bytes does not state its size"
                raise UsageError(message, "Give size=(width, height), and input_pix_fmt unless the layout is nv12.")
            return _raw(array, self.pix_fmt or _BY_BYTES[1], self.size)
        name = self.pix_fmt or _guessed(array.shape, array.dtype.itemsize)
        if array.ndim == ROWS_AND_COLUMNS and is_rows(name):  # PyAV supports few formats of this kind
            return _raw(array, name, picture_size(array.shape, name))
        return _framed(array, name)


def _raw(array: NDArray[Any], name: str, size: tuple[int, int]) -> VideoFrame:
    """Read planes without padding, as in raw video."""
    if array.dtype.kind not in "iu" or not array.dtype.isnative:
        message = f"samples must be integers in the machine's byte order; these are {array.dtype.str}"
        raise UsageError(message, "Round the samples, and convert them to integers first.")
    try:
        frame = VideoFrame(*size, name)
        planes = plane_arrays(frame)
    except (ValueError, Unsupported) as error:
        raise UsageError(f"raw video of {name} cannot be read: {error}", ADVICE) from None
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    wanted = sum(plane.nbytes for plane in planes)
    if data.size != wanted:
        message = f"{data.size} bytes are not a picture of {size[0]}x{size[1]} in {name}: such a picture has {wanted}"
        raise UsageError(message, "Give one whole picture at a time, without padding.")
    at = 0
    for plane in planes:
        plane[:] = data[at : at + plane.nbytes].view(plane.dtype).reshape(plane.shape)
        at += plane.nbytes
    return frame


def _framed(array: NDArray[Any], name: str) -> VideoFrame:
    try:
        return VideoFrame.from_ndarray(np.ascontiguousarray(array), format=name)
    except (AssertionError, LookupError, ValueError, NotImplementedError) as error:
        message = f"an array of {array.shape} {array.dtype} is not a picture in {name}: {error}"
        raise UsageError(message, f"Name the array's layout with input_pix_fmt. {ADVICE}") from None


def _guessed(shape: Sequence[int], item_bytes: int) -> str:
    if len(shape) == WITH_CHANNELS and shape[2] in _CHANNELS and item_bytes == 1:
        return _CHANNELS[shape[2]]
    if len(shape) == ROWS_AND_COLUMNS and item_bytes in _BY_BYTES:
        return _BY_BYTES[item_bytes]
    message = f"an array of {tuple(shape)} with samples of {item_bytes} bytes does not determine a picture's layout"
    raise UsageError(message, f"Name the layout with input_pix_fmt. {ADVICE}")


class HostConverter:
    """Converts software frames of one format to the encoder's format, if the formats differ."""

    def __init__(self, source: VideoFormat, target: VideoFormat, time_base: Fraction) -> None:
        self._target = target
        self._is_rgb = PixelFormat(source.pix_fmt).is_rgb and not PixelFormat(target.pix_fmt).is_rgb
        self._time_base = time_base
        self._chain = FilterChain(FilterSettings(target), time_base)

    def converted(self, frame: VideoFrame, ticks: int) -> VideoFrame:
        """Return a frame for the encoder, shown at ``ticks``. Raises Unsupported: FFmpeg cannot convert it."""
        pictures = [self._from_rgb(frame)] if self._is_rgb else [each for _, each in self._chain.push(ticks, frame)]
        found = next(iter(pictures), None)
        if found is None:
            raise Unsupported(f"converting {frame.format.name} to {self._target.pix_fmt} gave no frame", ADVICE)
        found.pts, found.time_base = ticks, self._time_base
        return found

    def _from_rgb(self, frame: VideoFrame) -> VideoFrame:
        colour = self._target.colour
        try:
            return frame.reformat(
                format=self._target.pix_fmt,
                dst_colorspace=_COLORSPACES[colour.matrix],
                dst_color_range=ColorRange(colour.range),
                interpolation=_EXACT,
                threads=1,
            )
        except (ValueError, NotImplementedError, KeyError) as error:
            message = f"{frame.format.name} cannot be converted to {self._target.pix_fmt}: {error}"
            raise Unsupported(message, ADVICE) from error
