"""Applies the picture steps of a report to reference pictures.

PyAV scales and converts, FFmpeg's ``bilateral`` denoises, and numpy does the rest.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, cast

import av.filter
import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from ...actors.media.values import HdrStatic, VideoFormat
from ..report.report import PictureReport, Report
from .pictures import comparable_format, conformed
from .reference.overlay import BurnReference, OverlayReference
from .reference.tone import ToneReference
from .stated.facts import StatedCrop

_KEEPS_SHAPE = Fraction(1, 200)  # rounding to a whole size must not turn square samples into 1281:1280
_BT709 = 1
_BYTE_BITS = 8
_GREY, _LIMITED_BLACK = 128, 16

_Plane = NDArray[Any]


@dataclass
class Stepwise:
    """Makes the reference for each output picture."""

    steps: PictureReport | None
    tone: ToneReference | None
    denoise: str = ""  # the options of FFmpeg's ``bilateral``; "" for no denoising
    overlay: OverlayReference | None = None
    burn: BurnReference | None = None
    _reformatters: dict[tuple[int, int, str], VideoReformatter] = field(default_factory=dict)

    def picture(self, source: VideoFrame, output: VideoFrame, time_s: Fraction | None) -> VideoFrame:
        """Return the picture that ``output`` should show, in the format in which pictures are compared.

        ``time_s`` is the source's time, which subtitles need.
        """
        under = self._under(source, output)
        if self.overlay is None and self.burn is None:
            return under
        planes, bits = planes_of(under), under.format.components[0].bits
        if self.overlay is not None:
            planes = self.overlay.planes(planes, bits, output)
        if self.burn is not None and time_s is not None:
            planes = self.burn.planes(planes, bits, output, time_s)
        return frame_of(planes, under.format.name, output)

    def _under(self, source: VideoFrame, output: VideoFrame) -> VideoFrame:
        steps, pix_fmt = self.steps, comparable_format(output.format.name)
        # Chroma has full resolution, because a quarter turn swaps horizontal and vertical subsampling.
        full = f"yuv444p{comparable_format(source.format.name).partition('p')[2]}"
        if steps is None:
            scaled = self._conformed(source, output, (output.width, output.height), full if self.tone else pix_fmt)
        else:
            whole = self._conformed(source, output, steps.size, full)
            width, height, x, y = steps.crop
            planes = [turned(plane[y : y + height, x : x + width], steps.turn) for plane in planes_of(whole)]
            framed = frame_of(planes, full, output)
            scaled = self._conformed(framed, output, steps.scaled, full if self.tone else pix_fmt)
        if self.tone is not None:
            bits, is_full = scaled.format.components[0].bits, is_full_range(output)
            planes = self.tone.planes(planes_of(scaled), bits, full_range=is_full)
            toned = frame_of(planes, scaled.format.name, output)
            scaled = self._conformed(toned, output, (scaled.width, scaled.height), pix_fmt)
        if self.denoise:
            scaled = denoised(scaled, self.denoise)
        if steps is None or steps.padded == steps.scaled:
            return scaled
        return padded(scaled, steps.padded, steps.place, output)

    def _conformed(self, frame: VideoFrame, output: VideoFrame, size: tuple[int, int], pix_fmt: str) -> VideoFrame:
        reformatter = self._reformatters.setdefault((*size, pix_fmt), VideoReformatter())
        return conformed(reformatter, frame, output, size, pix_fmt, keeps_matrix=self.tone is not None)

    def format(self, source: VideoFormat) -> VideoFormat:
        """Return a source's format with the output's size, sample aspect ratio and colours."""
        if self.tone is not None:
            colour = replace(source.colour, primaries=_BT709, transfer=_BT709, matrix=_BT709)
            source = replace(source, colour=colour, hdr=HdrStatic())
        if (steps := self.steps) is None:
            return source
        width, height = steps.crop[:2]
        shape = source.sample_aspect_ratio
        if not steps.turn[0]:
            width, height, shape = height, width, 1 / shape
        scaled = shape * Fraction(width * steps.scaled[1], height * steps.scaled[0])
        shape = shape if abs(scaled / shape - 1) < _KEEPS_SHAPE else scaled
        return replace(source, width=steps.padded[0], height=steps.padded[1], sample_aspect_ratio=shape)


def stepwise(source: str, report: Report | None) -> Stepwise | None:
    """Return the steps that a job's report states; None if there are none."""
    if report is None or not (report.steps or report.tone or report.denoise or report.overlay or report.burnt):
        return None
    overlay = None if report.overlay is None else OverlayReference.of(report.overlay)
    burn = None if report.burnt is None else BurnReference.of(source, report.burnt)
    tone = None if report.tone is None else ToneReference(report.tone)
    return Stepwise(report.steps, tone, report.denoise, overlay, burn)


def cropped(source: VideoFormat, crop: StatedCrop, output: VideoFormat) -> Stepwise:
    """Return the steps for pictures that were cropped because the source's container states a crop."""
    size, scaled = (source.width, source.height), (output.width, output.height)
    inner = (source.width - crop.left - crop.right, source.height - crop.top - crop.bottom, crop.left, crop.top)
    steps = PictureReport(size=size, crop=inner, turn=(1, 0, 0, 1), scaled=scaled, padded=scaled, place=(0, 0))
    return Stepwise(steps, None)


def denoised(frame: VideoFrame, options: str) -> VideoFrame:
    """Return a planar picture after FFmpeg's ``bilateral``; ``verify`` has no second implementation of this filter."""
    graph = av.filter.Graph()
    graph.threads = 1
    picture = {"video_size": f"{frame.width}x{frame.height}", "pix_fmt": frame.format.name, "time_base": "1/1"}
    source = graph.add("buffer", pixel_aspect="1/1", **picture)
    graph.link_nodes(source, graph.add("bilateral", f"{options}:planes=15"), graph.add("buffersink")).configure()
    frame.pts, frame.time_base = 0, Fraction(1)
    graph.push(frame)
    result = cast("VideoFrame", graph.pull())
    result.color_range, result.colorspace = frame.color_range, frame.colorspace
    return result


def is_full_range(output: VideoFrame) -> bool:
    """Return whether the output has full range."""
    return int(output.color_range) == int(ColorRange.JPEG)


def padded(inner: VideoFrame, size: tuple[int, int], place: tuple[int, int], output: VideoFrame) -> VideoFrame:
    """Return a planar picture at ``place`` on a black picture of ``size``, with the colours of ``output``."""
    found, pixel = [], inner.format
    black = 0 if is_full_range(output) else _LIMITED_BLACK
    for number, plane in enumerate(planes_of(inner)):
        across, down = (64 // pixel.chroma_width(64), 64 // pixel.chroma_height(64)) if number else (1, 1)
        level = (_GREY if number else black) << pixel.components[number].bits - 8
        canvas = np.full((ceil(size[1] / down), ceil(size[0] / across)), level, dtype=plane.dtype)
        left, top = place[0] // across, place[1] // down
        seen = plane[: canvas.shape[0] - top, : canvas.shape[1] - left]
        canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
        found.append(canvas)
    return frame_of(found, pixel.name, output)


def turned(plane: _Plane, turn: tuple[int, int, int, int]) -> _Plane:
    """Return a turned plane; ``turn`` holds a, b, c and d of a display matrix."""
    a, b, c, d = turn
    if a == 0:
        plane, a, d = plane.T, c, b
    return plane[::d, ::a]


def planes_of(frame: VideoFrame) -> list[_Plane]:
    """Return the planes of a planar picture, without the padding of their lines."""
    found = []
    for plane, component in zip(frame.planes, frame.format.components, strict=True):
        samples = np.frombuffer(memoryview(plane), "<u2" if component.bits > _BYTE_BITS else "u1")
        found.append(samples.reshape(plane.height, -1)[:, : plane.width])
    return found


def frame_of(planes: list[_Plane], pix_fmt: str, output: VideoFrame) -> VideoFrame:
    """Return a picture with these planes and the colours of ``output``."""
    height, width = planes[0].shape
    frame = VideoFrame(width, height, pix_fmt)
    for samples, plane in zip(planes, planes_of(frame), strict=True):
        plane[...] = samples
    frame.color_range, frame.colorspace = output.color_range, output.colorspace
    return frame
