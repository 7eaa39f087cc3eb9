"""Turns decoded pictures into an input tensor: converts size and colour, and normalises."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import av.error
import av.filter
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import Unsupported, UsageError
from ...segment.filtering import SCALE_FLAGS
from ..engine.tensors import DataCategory, PixelFormat, TensorDescriptor
from .layout import pack

GRAY, COLOUR, COLOUR_AND_SPARE = 1, 3, 4
_UNSPECIFIED: Final = 2
_HD_HEIGHT: Final = 720
_REBUILD: Final = "Build the loadable with an input of 1, 3 or 4 linear channels."
_YUV: Final = frozenset(number for number in PixelFormat if "Y" in number.name) | frozenset(
    number for number in PixelFormat if "10" in number.name
)


@dataclass(frozen=True, slots=True)
class PixelRule:
    """The arithmetic on a sample of 0 to 255: (sample - mean) x scale.

    ``mean`` and ``scale`` each have one number for all channels, or a number for each channel in the network's order.
    For a tensor of integers, the result is rounded half to even and clipped.
    """

    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    order: Literal["rgb", "bgr"] = "rgb"

    def applied(self, pictures: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return pictures (n, h, w, c) as numbers (n, c, h, w); ``UsageError`` if the means or scales do not fit."""
        channels = pictures.shape[3]
        if self.order == "bgr" and channels == COLOUR:
            pictures = pictures[..., ::-1]
        for numbers in (self.mean, self.scale):
            if len(numbers) not in (1, channels):
                message = f"{len(numbers)} means or scales were given for an input of {channels} channels"
                raise UsageError(message, "Give one number for all channels, or one for each channel.")
        mean, scale = (np.array(numbers, dtype=np.float32) for numbers in (self.mean, self.scale))
        values = (pictures.astype(np.float32) - mean) * scale
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2)).astype(dtype)


def channel_table(descriptor: TensorDescriptor, rule: PixelRule) -> bytes:
    """Return the tensor's element for each sample value: a row for each channel, with zeros for a fourth channel.

    ``UsageError`` if the number of means or scales differs from the number of channels.
    """
    channels = 1 if descriptor.c == GRAY else COLOUR
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, None, :, None], channels, axis=3)
    rows = rule.applied(ramp, descriptor.data_type.dtype)[0, :, 0]
    spare = np.zeros((descriptor.c - channels, 256), dtype=rows.dtype)
    return np.concatenate([rows, spare]).tobytes()


def check_input(descriptor: TensorDescriptor) -> None:
    """Raise ``Unsupported`` if pictures cannot fill the input."""
    packed = descriptor.data_category is DataCategory.IMAGE and descriptor.pixel_format in _YUV
    if descriptor.c not in (GRAY, COLOUR, COLOUR_AND_SPARE) or packed:
        wanted = f"{descriptor.c} channels, {descriptor.pixel_format.name}"
        raise Unsupported(f"the loadable's input {descriptor.name} takes {wanted}, which no picture has", _REBUILD)


def input_memory(descriptor: TensorDescriptor, pictures: Sequence[NDArray[np.uint8]], rule: PixelRule) -> NDArray[Any]:
    """Return the input tensor's memory, filled with up to ``descriptor.n`` pictures (h, w, c).

    If there are fewer pictures, the last one also takes the remaining places.
    """
    batch = np.stack([*pictures, *[pictures[-1]] * (descriptor.n - len(pictures))])
    values = rule.applied(batch, descriptor.data_type.dtype)
    if descriptor.c == COLOUR_AND_SPARE:
        values = np.concatenate([values, np.zeros_like(values[:, :1])], axis=1)
    return pack(descriptor, values)


class PictureScaler:
    """Stretches every picture to the tensor's size, in 8-bit RGB or grey of full range.

    Colour is converted by the picture's own matrix and range. A picture without a matrix is taken as BT.709 if it has
    720 lines or more, otherwise as BT.601. Every processor gives the same samples, bit for bit.
    """

    def __init__(self, descriptor: TensorDescriptor) -> None:
        self._width, self._height = descriptor.w, descriptor.h
        self._pix_fmt = "gray" if descriptor.c == GRAY else "rgb24"
        self._key: tuple[object, ...] | None = None
        self._graph = av.filter.Graph()

    def scaled(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return samples (h, w, 1) or (h, w, 3); ``Unsupported`` if FFmpeg cannot convert the picture."""
        key = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range)
        try:
            if key != self._key:
                self._graph, self._key = self._build(frame), key
            self._graph.push(frame)
            scaled = self._graph.pull()
        except (av.error.FFmpegError, ValueError, NotImplementedError) as error:
            message = f"a picture of {frame.width}x{frame.height} {frame.format.name} cannot be converted: {error}"
            raise Unsupported(message, "Transcode the source first: codecfleet transcode.") from error
        if not isinstance(scaled, VideoFrame):
            message = f"the conversion gave a {type(scaled).__name__}"
            raise Unsupported(message, "Transcode the source first: codecfleet transcode.")
        return np.asarray(scaled.to_ndarray(), dtype=np.uint8).reshape(self._height, self._width, -1)

    def _build(self, frame: VideoFrame) -> av.filter.Graph:
        graph = av.filter.Graph()
        graph.threads = 1  # one thread: other segments use the other cores
        described = (
            f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}:time_base=1/1:pixel_aspect=1/1"
            f":colorspace={int(frame.colorspace)}:range={int(frame.color_range)}"
        )
        size = f"w={self._width}:h={self._height}:flags={SCALE_FLAGS}:out_range=full"
        if int(frame.colorspace) == _UNSPECIFIED and not frame.format.is_rgb:
            size += f":in_color_matrix={'bt709' if frame.height >= _HD_HEIGHT else 'bt601'}"
        source, scale = graph.add("buffer", described), graph.add("scale", size)
        graph.link_nodes(source, scale, graph.add("format", self._pix_fmt), graph.add("buffersink")).configure()
        return graph
