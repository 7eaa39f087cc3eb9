"""Converts a device's surfaces to the pictures of a software decoder, and back: the same samples, bit by bit.

A surface interleaves chroma and holds 10 or 12 bits in the upper bits of 16; FFmpeg's planar formats do neither.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from numpy.typing import NDArray

from .formats import SurfaceFormat

Samples = NDArray[np.uint8] | NDArray[np.uint16]


def apply_colour(picture: VideoFrame, context: VideoCodecContext) -> None:
    """Set a picture's colours, which filters read, as a software decoder would."""
    picture.color_range, picture.colorspace = context.color_range, context.colorspace
    picture.color_primaries, picture.color_trc = context.color_primaries, context.color_trc


def planar_picture(
    surface: NDArray[np.uint8], format_: SurfaceFormat, width: int, height: int, pix_fmt: str
) -> VideoFrame:
    """Return a copy of a surface's bytes (without padding) as a software picture in the planar ``pix_fmt``."""
    frame = VideoFrame(width, height, pix_fmt)
    samples: Samples = surface if format_.sample_bytes == 1 else surface.view(np.uint16)
    shift = 8 * format_.sample_bytes - format_.bits
    for target, source in zip(plane_samples(frame, format_), _parts(samples, format_, width, height), strict=True):
        if shift:
            np.right_shift(source, shift, out=target)
        else:
            np.copyto(target, source)
    return frame


def packed_surface(picture: VideoFrame, format_: SurfaceFormat, surface: NDArray[np.uint8]) -> None:
    """Write a picture into a surface's bytes as NVDEC would; the inverse of ``planar_picture``."""
    samples: Samples = surface if format_.sample_bytes == 1 else surface.view(np.uint16)
    shift = 8 * format_.sample_bytes - format_.bits
    parts = _parts(samples, format_, picture.width, picture.height)
    for source, target in zip(plane_samples(picture, format_), parts, strict=True):
        np.left_shift(source, shift, out=target)


def _parts(samples: Samples, format_: SurfaceFormat, width: int, height: int) -> Iterator[Samples]:
    luma = width * height
    yield samples[:luma].reshape(height, width)
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    if format_.halved_across:
        pairs = samples[luma : luma + 2 * columns * rows].reshape(rows, columns, 2)
        yield pairs[:, :, 0]
        yield pairs[:, :, 1]
    else:
        yield samples[luma : 2 * luma].reshape(height, width)
        yield samples[2 * luma : 3 * luma].reshape(height, width)


def plane_samples(frame: VideoFrame, format_: SurfaceFormat) -> Iterator[NDArray[Any]]:
    """Yield a picture's planes as writable arrays without the padding."""
    kind = np.dtype(np.uint8 if format_.sample_bytes == 1 else np.uint16)
    for plane in frame.planes:
        yield plane_rows(plane, kind)[:, : plane.width]


def plane_rows(plane: VideoPlane, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return a plane's rows with padding, the top row first, even with the negative ``line_size`` of ``vflip``."""
    samples = np.frombuffer(memoryview(plane), dtype=kind)
    rows = samples[: plane.height * abs(plane.line_size) // kind.itemsize].reshape(plane.height, -1)
    return rows if plane.line_size > 0 else rows[::-1]
