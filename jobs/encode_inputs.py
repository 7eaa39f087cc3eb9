"""What users hand to ``Fleet.encode``, each read as one thing: a picture, where it is, and when it is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation

from ..actors.filtering import FilterChain, FilterSettings
from ..actors.frames import Frame
from ..actors.frames_dlpack import CPU
from ..actors.media import Colour, VideoFormat
from ..actors.nvidia.device_frame import DeviceFrame, DevicePicture, SurfaceLayout, device_planes
from ..actors.nvidia.fitness import SurfaceFormat, surface_format
from ..actors.nvidia.nvenc_dlpack import DeviceTensor, array_tensor, device_kind, device_tensor
from ..actors.nvidia.nvenc_inputs import TimedPicture
from ..errors import EncoderFailed, Unsupported, UsageError

__all__ = ["HostConverter", "Offered", "read_offered"]

_ADVICE: Final = "docs/frames.md lists what can be encoded."
_COLORSPACES: Final = {1: Colorspace.ITU709, 6: Colorspace.ITU601, 9: Colorspace.BT2020}
_EXACT: Final = (
    Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.BITEXACT
)
_SURFACES: Final = {
    "nv12": (SurfaceLayout.NV12, "yuv420p"),
    "p010le": (SurfaceLayout.P016, "yuv420p10le"),
    "nv16": (SurfaceLayout.NV16, "yuv422p"),
    "p210le": (SurfaceLayout.P216, "yuv422p10le"),
    "yuv444p": (SurfaceLayout.YUV444, "yuv444p"),
}
"""How rows of all planes on a device are called, and FFmpeg's planar format of the same samples."""
_ROWS_A_PICTURE: Final = {"4:2:0": Fraction(3, 2), "4:2:2": Fraction(2), "4:4:4": Fraction(3)}
_CHANNELS: Final = {3: "rgb24", 4: "rgba"}
_BY_BYTES: Final = {1: "nv12", 2: "p010le"}


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """One picture to encode. ``pixels`` is a software frame, or a picture on the device.

    ``format`` says all that is known of it. ``time_s`` is None where it carries no time.
    """

    pixels: VideoFrame | DevicePicture
    format: VideoFormat
    time_s: Fraction | None
    ticks: tuple[int, Fraction] | None = None
    """Its time as whole ticks of a time base, where it came so; 0 is the time base that the user names."""

    @property
    def shape(self) -> tuple[int, int, str, bool]:
        """What all pictures of a file must have in common: width, height, pixel format, place."""
        on_device = isinstance(self.pixels, DevicePicture)
        return self.format.width, self.format.height, self.format.pix_fmt, on_device


def read_offered(item: object, *, input_pix_fmt: str | None, frame_rate: Fraction) -> Offered:
    """Read what a user gave: a picture, or (picture, seconds).

    Args:
        item: a ``Frame``, PyAV's ``VideoFrame``, an array or tensor, a device frame, or a ``TimedPicture`` of these.
        input_pix_fmt: FFmpeg's name of how arrays are laid out; None guesses by their shape.
        frame_rate: the nominal rate, where the picture does not say.

    Raises:
        UsageError: it is no picture, or none of that format.
    """
    if isinstance(item, TimedPicture):
        offered = read_offered(item.pixels, input_pix_fmt=input_pix_fmt, frame_rate=frame_rate)
        return replace(offered, time_s=None, ticks=(item.pts_ticks, Fraction(0)))
    if isinstance(item, tuple) and len(item) == 2:  # noqa: PLR2004 - a picture and its time
        offered = read_offered(item[0], input_pix_fmt=input_pix_fmt, frame_rate=frame_rate)
        try:
            return replace(offered, time_s=Fraction(item[1]), ticks=None)
        except (TypeError, ValueError, ArithmeticError) as error:
            message = f"{item[1]!r} is no time in seconds: {error}"
            raise UsageError(message, "Give (picture, Fraction).") from None
    if isinstance(item, Frame):
        pixels = item.device_picture or item.to_video_frame()
        return Offered(pixels, item.format, item.time_s, (item.ticks, item.time_base))
    picture = _on_device(item, input_pix_fmt)
    if picture is not None:
        frame = picture.frame
        return Offered(picture, VideoFormat(frame.width, frame.height, picture.pix_fmt, frame_rate), None)
    return _of_video_frame(item if isinstance(item, VideoFrame) else _of_array(item, input_pix_fmt), frame_rate)


def _on_device(item: object, pix_fmt: str | None) -> DevicePicture | None:
    """Return a picture that lies on the device, None where it does not."""
    if isinstance(item, DevicePicture):
        return item
    if isinstance(item, DeviceFrame):
        return _of_device_frame(item)
    try:
        return _of_tensor(_tensor(item), pix_fmt) if _is_on_device(item) else None
    except EncoderFailed as error:
        raise UsageError(error.message, error.next_step) from error


def _of_video_frame(frame: VideoFrame, frame_rate: Fraction) -> Offered:
    colour = Colour(
        range=int(frame.color_range),
        primaries=int(frame.color_primaries),
        transfer=int(frame.color_trc),
        matrix=int(frame.colorspace),
    )
    format_ = VideoFormat(frame.width, frame.height, frame.format.name, frame_rate, colour=colour)
    if frame.pts is None or not frame.time_base:
        return Offered(frame, format_, None)
    return Offered(frame, format_, frame.pts * Fraction(frame.time_base), (frame.pts, Fraction(frame.time_base)))


def _of_array(item: Any, pix_fmt: str | None) -> VideoFrame:  # noqa: ANN401 - whatever may be an array
    try:
        array = item if isinstance(item, np.ndarray) else np.from_dlpack(item)
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError) as error:
        message = f"a {type(item).__name__} is no picture: {error}"
        raise UsageError(message, _ADVICE) from None
    name = pix_fmt or _guessed(array.shape, array.dtype.itemsize)
    try:
        return VideoFrame.from_ndarray(np.ascontiguousarray(array), format=name)
    except (AssertionError, LookupError, ValueError, NotImplementedError) as error:
        message = f"an array of {array.shape} {array.dtype} is no {name} picture: {error}"
        raise UsageError(message, f"Say what it is by input_pix_fmt. {_ADVICE}") from None


def _guessed(shape: Sequence[int], item_bytes: int) -> str:
    if len(shape) == 3 and shape[2] in _CHANNELS and item_bytes == 1:  # noqa: PLR2004 - rows, columns, channels
        return _CHANNELS[shape[2]]
    if len(shape) == 2 and item_bytes in _BY_BYTES:  # noqa: PLR2004 - rows of all planes
        return _BY_BYTES[item_bytes]
    message = f"an array of {tuple(shape)} with samples of {item_bytes} bytes does not tell what picture it is"
    raise UsageError(message, f"Say it by input_pix_fmt. {_ADVICE}")


def _is_on_device(item: object) -> bool:
    if hasattr(item, "__cuda_array_interface__"):
        return True
    return hasattr(item, "__dlpack_device__") and device_kind(item) != CPU


def _tensor(item: Any) -> DeviceTensor:  # noqa: ANN401 - whatever lies on a device
    # DLPack first: its producer orders its work before the reader's.
    return device_tensor(item) if hasattr(item, "__dlpack__") else array_tensor(item)


def _of_tensor(tensor: DeviceTensor, pix_fmt: str | None) -> DevicePicture:
    """Take rows of all planes, with axes of length 1 before them."""
    name = pix_fmt or _BY_BYTES.get(tensor.item_bytes, "")
    if name not in _SURFACES or len(tensor.shape) < 2 or set(tensor.shape[:-2]) - {1}:  # noqa: PLR2004 - rows, columns
        message = f"a tensor of {tensor.shape} on the device is no picture of {pix_fmt or 'a known layout'}"
        raise UsageError(message, f"On the device: the rows of all planes of {', '.join(_SURFACES)}. {_ADVICE}")
    layout, planar = _SURFACES[name]
    format_ = surface_format(planar)
    rows, columns = tensor.shape[-2:]
    if format_ is None or format_.layout is not layout or format_.sample_bytes != tensor.item_bytes:
        message = f"samples of {tensor.item_bytes} bytes are no {name}"
        raise UsageError(message, _ADVICE)
    height = rows / _ROWS_A_PICTURE[format_.chroma]
    if height.denominator != 1 or not min(rows, columns) or not format_.holds(columns, int(height)):
        message = f"a tensor of {tensor.shape} is no {name} picture: its sides do not fit"
        raise UsageError(message, _ADVICE)
    _check_tight(tensor)
    return _picture(format_, planar, tensor.address, (columns, int(height)), tensor)


def _check_tight(tensor: DeviceTensor) -> None:
    expected = tensor.item_bytes
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.strides_bytes or ()), strict=False):
        if length > 1 and stride != expected:
            message = f"a tensor of {tensor.shape} with strides of {tensor.strides_bytes} bytes has gaps"
            raise UsageError(message, "Copy it into one piece first (contiguous()).")
        expected *= length


def _picture(format_: SurfaceFormat, pix_fmt: str, address: int, size: tuple[int, int], owner: object) -> DevicePicture:
    planes = device_planes(format_, address, *size)
    frame = DeviceFrame(
        layout=format_.layout, bits=format_.bits, width=size[0], height=size[1], planes=planes, owner=owner
    )
    return DevicePicture(frame, format_, pix_fmt)


def _of_device_frame(frame: DeviceFrame) -> DevicePicture:
    for layout, planar in _SURFACES.values():
        depth = "" if frame.bits == 8 else f"{frame.bits}le"  # noqa: PLR2004 - bits of a byte
        pix_fmt = f"{planar.removesuffix('10le')}{depth}"
        format_ = surface_format(pix_fmt)
        if format_ is not None and format_.layout is frame.layout is layout:
            return DevicePicture(frame, format_, pix_fmt)
    if frame.layout is SurfaceLayout.YUV444_16:
        pix_fmt = f"yuv444p{frame.bits}le"
        if (format_ := surface_format(pix_fmt)) is not None:
            return DevicePicture(frame, format_, pix_fmt)
    message = f"a device frame of {frame.layout.value} with {frame.bits} bits is no picture that can be encoded"
    raise UsageError(message, _ADVICE)


class HostConverter:
    """Makes software frames of one format into what is encoded: not at all, or by one stated conversion.

    Args:
        source: what comes.
        target: what is encoded.
        time_base: of the encoder.
    """

    def __init__(self, source: VideoFormat, target: VideoFormat, time_base: Fraction) -> None:
        self._target = target
        self._is_rgb = PixelFormat(source.pix_fmt).is_rgb and not PixelFormat(target.pix_fmt).is_rgb
        self._time_base = time_base
        self._chain = FilterChain(FilterSettings(target), time_base)

    def converted(self, frame: VideoFrame, ticks: int) -> VideoFrame:
        """Return a frame as the encoder takes it, shown at ``ticks``.

        Raises:
            Unsupported: FFmpeg cannot convert it.
        """
        pictures = [self._from_rgb(frame)] if self._is_rgb else [each for _, each in self._chain.push(ticks, frame)]
        found = next(iter(pictures), None)
        if found is None:
            message = f"a frame of {frame.format.name} gave none of {self._target.pix_fmt}"
            raise Unsupported(message, _ADVICE)
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
            raise Unsupported(message, _ADVICE) from error
