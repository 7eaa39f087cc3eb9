"""Decoded pictures as stills: scaled, in RGB, turned upright."""

from collections.abc import Callable
from contextlib import closing

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..media.values import VideoFormat
from ..segment.filtering import FilterChain, FilterSettings
from .files import ANY_RATE, RGB, encode_still
from .look import StillLook, Turn


def paint(frame: VideoFrame, look: StillLook) -> NDArray[np.uint8]:
    """Return a decoded picture as (rows, columns, 3) samples of RGB, as it is to be shown.

    Raises:
        Unsupported: FFmpeg cannot convert it.
    """
    width, height = look.turn.size(look.width, look.height)
    stored = VideoFormat(width, height, RGB, ANY_RATE, colour=look.colour)
    with closing(FilterChain(FilterSettings(stored), 1 / ANY_RATE)) as chain:
        ((_, picture),) = chain.push(0, frame)
    return turned(np.asarray(picture.to_ndarray(format=RGB), dtype=np.uint8), look.turn)


def turned(rgb: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    """Return a picture of (rows, columns, 3) samples, turned."""
    if turn.swaps_axes:
        rgb = rgb.transpose(1, 0, 2)
    across, down = (-1 if reverses else 1 for reverses in (turn.reverses_across, turn.reverses_down))
    return np.ascontiguousarray(rgb[::down, ::across])


def drawer(look: StillLook) -> Callable[[VideoFrame], NDArray[np.uint8]]:
    """Return what turns a decoded picture into the bytes of its file, or into its samples if no file is asked for."""
    format_, quality = look.format, look.quality
    if format_ is None:
        return lambda frame: paint(frame, look).ravel()
    return lambda frame: np.frombuffer(encode_still(paint(frame, look), format_, quality), dtype=np.uint8)
