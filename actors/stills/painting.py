"""Decoded pictures as stills: scaled, in RGB, turned upright."""

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..media.values import VideoFormat
from ..segment.filtering import FilterChain, FilterSettings
from ..segment.steps import UPRIGHT, PictureSteps
from .files import ANY_RATE, RGB, encode_still
from .look import StillLook, Turn


class Painter:
    """Makes stills of one look; used by one thread."""

    def __init__(self, look: StillLook) -> None:
        self._look = look
        width, height = look.turn.size(look.width, look.height)
        stored = VideoFormat(width, height, RGB, ANY_RATE, colour=look.colour)
        steps = None
        if look.crop is not None:
            size, shown = look.crop
            steps = PictureSteps(
                size=size, crop=shown, turn=UPRIGHT, scaled=(width, height), padded=(width, height), place=(0, 0)
            )
        settings = FilterSettings(stored, steps=steps, tone=look.tone, by_picture=look.by_picture)
        self._chain = FilterChain(settings, 1 / ANY_RATE)

    def paint(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return a picture as (rows, columns, 3) samples of RGB, as shown; ``Unsupported`` if FFmpeg cannot."""
        ((_, picture),) = self._chain.push(0, frame)
        return turned(np.asarray(picture.to_ndarray(format=RGB), dtype=np.uint8), self._look.turn)

    def draw(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return a picture's file, or its samples if none is asked for; ``Unsupported`` or ``EncoderFailed``."""
        rgb, look = self.paint(frame), self._look
        if look.format is None:
            return rgb.ravel()
        return np.frombuffer(encode_still(rgb, look.format, look.quality), dtype=np.uint8)


def turned(rgb: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    """Return a picture of (rows, columns, 3) samples, turned."""
    if turn.swaps_axes:
        rgb = rgb.transpose(1, 0, 2)
    across, down = (-1 if reverses else 1 for reverses in (turn.reverses_across, turn.reverses_down))
    return np.ascontiguousarray(rgb[::down, ::across])
