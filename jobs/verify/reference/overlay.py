"""Computes the reference for overlays and burnt-in subtitles (docs/filters.md) with floats; segments use integers."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange
from numpy.typing import NDArray

from ....errors import REDACTED, UsageError
from ...report.report import BurnReport, OverlayReport
from ...source.drawn.burnt_track import BurntTrack, read_burnt
from ...source.drawn.overlay_file import OverlayFile
from ...source.tracks import describe_tracks
from ..pictures import block_means
from .tone import LUMA_2020, levels_of, to_pq

if TYPE_CHECKING:
    from ....actors.segment.burn import Subtitle

_Samples: TypeAlias = NDArray[np.float64]

_WHITE_CD: Final = 203
_PQ, _HLG, _BT2020 = 16, 18, 9
_HD_LINES: Final = 720
_LUMA: Final = {1: (0.2126, 0.7152, 0.0722), 5: (0.299, 0.587, 0.114), 6: (0.299, 0.587, 0.114)} | {
    _BT2020: (0.2627, 0.678, 0.0593)
}
_TO_2020: Final = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])


@dataclass
class OverlayReference:
    """Lays a picture over other pictures as a report says."""

    file: OverlayFile
    overlay: OverlayReport

    @classmethod
    def of(cls, overlay: OverlayReport) -> Self:
        """Read the picture.

        Raises InputError; UsageError: the picture has changed, or the report hides part of its address.
        """
        if "://" in overlay.picture and REDACTED in overlay.picture:
            message = f"the report leaves out the secret part of the overlay picture's address: {overlay.picture}"
            raise UsageError(message, "Download the picture, and write its path into the report as overlay.picture.")
        file = OverlayFile.read(overlay.picture)
        if file.sha256 != overlay.sha256:
            message = f"the overlay picture {overlay.picture} has changed since the report was written"
            raise UsageError(message, "Restore the picture that was used, or leave out --report.")
        return cls(file, overlay)

    @cached_property
    def _rgba(self) -> _Samples:
        return self.file.samples() / 255

    def planes(self, planes: list[NDArray[Any]], bits: int, output: VideoFrame) -> list[NDArray[Any]]:
        """Return planes of Y', Cb and Cr with the overlay picture drawn over them.

        Raises UsageError if the picture is partly outside.
        """
        (height, width), (x, y) = planes[0].shape, self.overlay.place
        if y + self._rgba.shape[0] > height or x + self._rgba.shape[1] > width:
            message = f"the report has an overlay that reaches outside the output's {width}x{height}"
            raise UsageError(message, "Name the report of this output.")
        rgba = self._rgba * np.array([1, 1, 1, self.overlay.opacity_percent / 100])
        return _laid(planes, rgba, self.overlay.place, bits, output)


@dataclass
class BurnReference:
    """Burns a track's subtitles into pictures as a report says."""

    track: BurntTrack
    burnt: BurnReport
    square_samples: bool
    _shown: "tuple[Subtitle, _Samples] | None" = None

    @classmethod
    def of(cls, source: str, burnt: BurnReport) -> Self:
        """Read the track. Raises InputError, or UsageError if its subtitles or its font have changed."""
        tracks = [each for each in describe_tracks(source).tracks if each.index == burnt.source_index]
        shape, font = Fraction(burnt.shape), burnt.font
        found = read_burnt(source, tracks[0], burnt.source, font).burnt(burnt.source, shape) if tracks else None
        if found is None or found.sha256 != burnt.sha256:
            what = f"the subtitles of {source} have changed"
            message = f"{what if font is None else f'{what}, or the font {font} has,'} since the report was written"
            raise UsageError(message, "Restore the subtitles and font that were used, or leave out --report.")
        return cls(found, burnt, square_samples=tracks[0].codec == "hdmv_pgs_subtitle")

    def planes(self, planes: list[NDArray[Any]], bits: int, output: VideoFrame, time_s: Fraction) -> list[NDArray[Any]]:
        """Return planes of Y', Cb and Cr, with the subtitle shown at ``time_s`` drawn over them."""
        at = (each for each in self.track.subtitles if each.start_s <= time_s < each.end_s)
        if (subtitle := next(at, None)) is None:
            return planes
        if self._shown is None or self._shown[0] is not subtitle:
            self._shown = subtitle, self._scaled(subtitle, (output.width, output.height))
        return _laid(planes, self._shown[1], (0, 0), bits, output)

    def _scaled(self, subtitle: "Subtitle", size: tuple[int, int]) -> _Samples:
        """Return R, G, B and alpha of a single subtitle on a picture of ``size``."""
        left, top, width, height = (float(Fraction(each)) for each in self.burnt.screen)
        (across, down), shape = subtitle.canvas, float(Fraction(self.burnt.shape))
        wide, high = width / across, height / down
        if self.square_samples and subtitle.canvas != self.burnt.source:
            smaller = min(wide * shape, high)
            left, top = left + (width - across * smaller / shape) / 2, top + (height - down * smaller) / 2
            wide, high = smaller / shape, smaller
        samples = subtitle.samples() / 255
        samples[..., :3] *= samples[..., 3:]
        for axis, begin, scale, whole in (
            (0, top + subtitle.y * high, high, size[1]),
            (1, left + subtitle.x * wide, wide, size[0]),
        ):
            length = samples.shape[axis]
            over = max(0, ceil(round(begin + length * scale - whole, 6)))
            moved = begin - min(over, max(0, floor(round(begin, 6))))
            moved += max(0, ceil(round(-moved, 6)))
            middles = (np.arange(whole)[:, None] + 0.5 - moved) / scale - 0.5
            parts = np.maximum(0, 1 - np.abs(np.arange(length)[None, :] - middles) / max(1, 1 / scale))
            parts /= max(1, 1 / scale)
            samples = np.moveaxis(np.tensordot(parts, samples, axes=(1, axis)), 0, axis)
        samples[..., :3] /= np.maximum(samples[..., 3:], 1e-9)
        return np.asarray(np.clip(samples, 0, 1))


def _laid(
    planes: list[NDArray[Any]], rgba: _Samples, place: tuple[int, int], bits: int, output: VideoFrame
) -> list[NDArray[Any]]:
    height, width = planes[0].shape
    levels, alpha, (x, y) = _coded(rgba[..., :3], bits, output), rgba[..., 3], place
    rows, columns = slice(y, y + alpha.shape[0]), slice(x, x + alpha.shape[1])
    found = []
    for plane, own in zip(planes, levels, strict=False):
        across, down = ceil(width / plane.shape[1]), ceil(height / plane.shape[0])
        spread = plane.astype(np.float64).repeat(down, axis=0).repeat(across, axis=1)[:height, :width]
        spread[rows, columns] += alpha * (own - spread[rows, columns])
        found.append(np.floor(block_means(spread, across, down) + 0.5).astype(plane.dtype))
    return found + planes[len(found) :]


def _coded(rgb: _Samples, bits: int, output: VideoFrame) -> list[_Samples]:
    full_range = int(output.color_range) == int(ColorRange.JPEG)
    black, steps, middle, chroma_steps = levels_of(bits, full_range=full_range)
    transfer = int(output.color_trc)
    rgb = _in_hdr(rgb, transfer) if transfer in (_PQ, _HLG) else rgb
    is_2020 = transfer in (_PQ, _HLG) or int(output.color_primaries) == _BT2020
    unstated = _BT2020 if is_2020 else 1 if output.height >= _HD_LINES else 6
    weights = _LUMA.get(int(output.colorspace)) or _LUMA[unstated]
    luma = rgb @ np.array(weights)
    blue, red = ((rgb[..., at] - luma) / (2 * (1 - weights[at])) for at in (2, 0))
    coded = [black + steps * luma, middle + chroma_steps * blue, middle + chroma_steps * red]
    return [np.minimum(each, (1 << bits) - 1) for each in coded[: len(output.format.components)]]


def _in_hdr(rgb: _Samples, transfer: int) -> _Samples:
    light = (rgb**2.4 @ _TO_2020.T) * _WHITE_CD
    if transfer == _PQ:
        return to_pq(light)
    shown = light / 1000
    scene = shown * np.maximum(shown @ LUMA_2020.astype(np.float64), 1e-9)[..., None] ** (-1 / 6)
    bright = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
    return np.asarray(np.where(scene <= 1 / 12, np.sqrt(3 * scene), bright))
