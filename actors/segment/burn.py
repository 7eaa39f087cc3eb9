"""Subtitles burnt into the pictures: which subtitle is on screen at a time, where, and with which samples.

docs/filters.md has the rules. A picture gets the subtitle at its own time, regardless of the segment.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final, Self, TypeAlias

import av.filter
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..media.values import VideoFormat
from .overlay import Blend, blends_for, lay
from .steps import Size

_DIGITS: Final = 16
_ONE: Final = 1 << 12
"""The sum of a sample's weights; positions are rounded to 1/4096 of a sample."""
_BYTE: Final = 255
OWN_BYTES, LAID_BYTES = 48, 60
"""Bytes of memory per pixel of a stored and of a scaled subtitle. Measured in 1080p: full-screen 720p subtitles took
158 MiB, 2160p 410 MiB.
"""

Samples: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The place of the source's picture in the output picture, in output samples. Cropping may leave parts outside."""

    left: Fraction
    top: Fraction
    width: Fraction
    height: Fraction
    source: Size  # the source's size, turned as in the output
    shape: Fraction  # the output's sample aspect ratio
    square_samples: bool  # whether a canvas of another shape is centred instead of stretched


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtitle:
    """A part of a canvas that is shown in [``start_s``, ``end_s``), in seconds of the source's clock."""

    start_s: Fraction
    end_s: Fraction
    canvas: Size
    x: int
    y: int
    width: int
    height: int
    sha256: str  # the digest of the rows as stored
    packed: bytes = field(repr=False)  # rows of R, G, B and alpha, compressed

    @property
    def content(self) -> tuple[object, ...]:
        """A key of the pixels and their position, equal for equal pictures."""
        return self.canvas, self.x, self.y, self.width, self.height, self.sha256

    def samples(self) -> Samples:
        """Return the rows of R, G, B and alpha: (height, width, 4)."""
        return np.frombuffer(zlib.decompress(self.packed), np.uint8).reshape(self.height, self.width, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurntSubtitles:
    """A track's subtitles, in order and one at a time."""

    source_index: int  # the track's index in the source
    track: str
    sha256: str  # the digest of the whole track, even if ``subtitles`` has only a part
    screen: Screen
    subtitles: tuple[Subtitle, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The words for this burnt track in the encoder kind (docs/encoders.md)."""
        return f"burn={self.sha256[:_DIGITS]}"

    @property
    def words(self) -> str:
        """The track's description for the user."""
        return f"with the subtitles of {self.track} burnt in"

    @property
    def kept_bytes(self) -> int:
        """The memory needed to burn the largest subtitle, for the stored and the scaled samples."""
        largest = max(self.subtitles, key=lambda each: each.width * each.height, default=None)
        if largest is None:
            return 0
        pixels, canvas = largest.width * largest.height, largest.canvas[0] * largest.canvas[1]
        screen = self.screen.width * self.screen.height
        return OWN_BYTES * pixels + ceil(LAID_BYTES * pixels * screen / canvas)

    def during(self, start_s: Fraction | None, end_s: Fraction | None) -> Self:
        """Return a copy that has only the subtitles on screen in [start, end); None means unbounded."""
        every = self.subtitles
        first = 0 if start_s is None else bisect_right(every, start_s, key=_end)
        last = len(every) if end_s is None else bisect_left(every, end_s, key=_start)
        return replace(self, subtitles=every[first:last])

    def at(self, time_s: Fraction) -> Subtitle | None:
        """Return the subtitle on screen at a time, or None."""
        place = bisect_right(self.subtitles, time_s, key=_start) - 1
        found = self.subtitles[place] if place >= 0 else None
        return found if found is not None and time_s < found.end_s else None


def _start(subtitle: Subtitle) -> Fraction:
    return subtitle.start_s


def _end(subtitle: Subtitle) -> Fraction:
    return subtitle.end_s


class Burner:
    """Burns subtitles into pictures of one format, which come in order. Used by one thread."""

    def __init__(self, burnt: BurntSubtitles, output: VideoFormat) -> None:
        self._burnt = burnt
        self._output = output
        self._shown: Subtitle | None = None
        self._blends: Sequence[tuple[int, Blend]] = ()
        self._graph: av.filter.Graph | None = None

    def burn(self, time_s: Fraction, frame: VideoFrame) -> VideoFrame:
        """Draw the subtitle of the picture's time on a copy of the picture; without a subtitle, return the picture."""
        shown = self._burnt.at(time_s)
        if shown is None:
            return frame
        if shown is not self._shown:
            self._shown, self._blends = shown, self._worked_out(shown)
        # Draw on a copy: the decoder may still refer to the picture, or the picture may be shown again.
        mine = self._copied(frame)
        lay(self._blends, mine)
        return mine

    def _worked_out(self, shown: Subtitle) -> Sequence[tuple[int, Blend]]:
        place, samples = laid_out(shown, self._burnt.screen, (self._output.width, self._output.height))
        return blends_for(samples, place, 100, self._output)

    def _copied(self, frame: VideoFrame) -> VideoFrame:
        frame.pts, frame.time_base = 0, Fraction(1)
        graph = self._graph = self._graph or _copier(frame)
        graph.push(frame)
        copied = graph.pull()
        if not isinstance(copied, VideoFrame):
            raise TypeError(copied)
        return copied


def _copier(frame: VideoFrame) -> av.filter.Graph:
    graph = av.filter.Graph()
    graph.threads = 1
    described = (
        f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}:time_base=1/1:pixel_aspect=1/1"
        f":colorspace={int(frame.colorspace)}:range={int(frame.color_range)}"
    )
    graph.link_nodes(graph.add("buffer", described), graph.add("copy"), graph.add("buffersink")).configure()
    return graph


def laid_out(subtitle: Subtitle, screen: Screen, size: Size) -> tuple[Size, Samples]:
    """Return a subtitle's position in pictures of ``size``, and its samples; parts outside are cut off."""
    axes = [
        _Axis.of(begin, length, scale, whole)
        for (begin, scale), length, whole in zip(
            placed(subtitle, screen, size), (subtitle.width, subtitle.height), size, strict=True
        )
    ]
    across, down = axes
    samples = subtitle.samples()
    if not across.is_identity or not down.is_identity:
        return (across.first, down.first), _scaled(samples, across, down)
    rows, columns = (slice(axis.first - axis.begin, axis.end - axis.begin) for axis in (down, across))
    return (across.first, down.first), samples[rows, columns]


def placed(subtitle: Subtitle, screen: Screen, size: Size) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return (position, scale) of a subtitle in pictures of ``size``, across and down.

    A subtitle that reaches outside is moved inside by as few whole samples as possible.
    """
    wide, high = screen.width / subtitle.canvas[0], screen.height / subtitle.canvas[1]
    if screen.square_samples and subtitle.canvas != screen.source:
        high = min(wide * screen.shape, high)
        wide = high / screen.shape
    found = []
    for begin, outer, scale, canvas, at, length, whole in (
        (screen.left, screen.width, wide, subtitle.canvas[0], subtitle.x, subtitle.width, size[0]),
        (screen.top, screen.height, high, subtitle.canvas[1], subtitle.y, subtitle.height, size[1]),
    ):
        first = begin + (outer - canvas * scale) / 2 + at * scale
        beyond = max(0, ceil(first + length * scale - whole))
        moved = first - min(beyond, max(0, floor(first)))
        found.append((moved + max(0, ceil(-moved)), scale))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """The resampling along one axis to the samples [``first``, ``end``) of a picture."""

    first: int
    end: int
    begin: int  # the first sample's position, if the samples are not resampled
    is_identity: bool
    taps: NDArray[np.int64]  # the source samples for each sample; a position outside is transparent
    weights: NDArray[np.int64]  # the weights of ``taps``, which sum to ``_ONE``

    @classmethod
    def of(cls, begin: Fraction, length: int, scale: Fraction, whole: int) -> Self:
        """Return the axis of ``length`` source samples from ``begin`` on; each covers ``scale`` picture samples."""
        # A triangle filter two samples wide, measured in source or target samples, whichever are larger.
        reach = max(Fraction(1), 1 / scale)
        first = max(0, floor(begin + scale * (Fraction(1, 2) - reach) - Fraction(1, 2)) + 1)
        end = min(whole, ceil(begin + scale * (length - Fraction(1, 2) + reach) - Fraction(1, 2)))
        end = max(first, end)
        middles = [floor(((2 * each + 1 - 2 * begin) / scale - 1) * _ONE / 2) for each in range(first, end)]
        places = np.array(middles, np.int64)[:, None]
        steps = np.arange(1 - ceil(reach), ceil(reach) + 1)[None, :]
        taps = places // _ONE + steps
        weights = np.maximum(0, floor(reach * _ONE) - np.abs(taps * _ONE - places))
        sums = np.maximum(1, weights.sum(axis=1, keepdims=True))
        weights = (2 * weights * _ONE + sums) // (2 * sums)
        is_identity = scale == 1 and begin.denominator == 1
        return cls(first, end, floor(begin), is_identity, taps, weights)


def _scaled(samples: Samples, across: _Axis, down: _Axis) -> Samples:
    """Return samples resampled along both axes; colours are weighted by their opacity."""
    alpha = samples[..., 3:].astype(np.int32)
    weighed = np.concatenate([samples[..., :3] * alpha, _BYTE * alpha], axis=2)
    weighed = _resampled(_resampled(weighed, down).swapaxes(0, 1), across).swapaxes(0, 1)
    opacity = weighed[..., 3:]
    colours = (2 * _BYTE * weighed[..., :3] + opacity) // np.maximum(1, 2 * opacity)
    found = np.concatenate([np.minimum(colours, _BYTE), (opacity + _BYTE // 2) // _BYTE], axis=2)
    return np.asarray(np.minimum(found, _BYTE), np.uint8)


def _resampled(values: NDArray[Any], axis: _Axis) -> NDArray[np.int32]:
    found = np.full((len(axis.taps), *values.shape[1:]), _ONE // 2, np.int32)
    for tap, weight in zip(axis.taps.T, axis.weights.T, strict=True):
        inside = (tap >= 0) & (tap < len(values))
        kept = np.where(inside, weight, 0).astype(np.int32)
        found += values[np.clip(tap, 0, len(values) - 1)] * kept[:, None, None]
    return np.asarray(np.minimum(found // _ONE, _BYTE * _BYTE), np.int32)
