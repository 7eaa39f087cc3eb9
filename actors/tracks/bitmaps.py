"""Decodes bitmap subtitles (PGS, DVB, VobSub): which bitmap each packet shows, and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import av.error
import numpy as np
from av.subtitles.codeccontext import SubtitleCodecContext
from av.subtitles.subtitle import BitmapSubtitle
from numpy.typing import NDArray

from ...errors import InputTooLarge, Unsupported
from ..media.av_abi import subtitle_canvas, subtitle_palette

if TYPE_CHECKING:
    from av.packet import Packet
    from av.subtitles.stream import SubtitleStream
    from av.subtitles.subtitle import SubtitleSet

Samples: TypeAlias = NDArray[np.uint8]
"""An array of R, G, B and alpha: (height, width, 4)."""
Size: TypeAlias = tuple[int, int]

BITMAP_CODECS: Final = frozenset({"hdmv_pgs_subtitle", "dvb_subtitle", "dvd_subtitle"})
"""FFmpeg's canonical names of the codecs."""
MOST_PIXELS: Final = 8192 * 4320
"""The most samples of a canvas: those of 8K."""
_DVB_CANVAS: Final = (720, 576)
"""The canvas of a DVB track without a display definition (ETSI EN 300 743, 5.1.3)."""
_NEVER_MS: Final = (1 << 32) - 1
_MILLISECOND, _MICROSECOND = Fraction(1, 1000), Fraction(1, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class Bitmap:
    """A bitmap on a canvas of size ``canvas``, cropped to its non-transparent part."""

    canvas: Size
    x: int
    y: int
    samples: Samples


@dataclass(frozen=True, slots=True, eq=False)
class Showing:
    """Shows ``bitmap`` (None: nothing) from ``start_s`` to ``end_s`` or to the next showing, by the source's clock."""

    start_s: Fraction
    end_s: Fraction | None
    bitmap: Bitmap | None


class BitmapDecoder:
    """Decodes a track's packets in order. ``size`` is the film's: the canvas of PGS and VobSub that state none."""

    def __init__(self, stream: "SubtitleStream", size: Size) -> None:
        context = stream.codec_context
        if not isinstance(context, SubtitleCodecContext) or context.codec.canonical_name not in BITMAP_CODECS:
            raise Unsupported(f"subtitle track {stream.index} has no bitmaps", "Choose another track.")
        self._context = context
        self._context.options = {"max_pixels": str(MOST_PIXELS)}
        self._tick = Fraction(stream.time_base or 1)
        self._size = _DVB_CANVAS if context.codec.canonical_name == "dvb_subtitle" else size
        self.failed = 0  # how many packets could not be decoded, or lack a time

    def decode(self, packet: "Packet[SubtitleStream]") -> Iterator[Showing]:
        """Yield the showing that a packet completes, if any; ``InputTooLarge`` if a canvas exceeds ``MOST_PIXELS``."""
        try:
            found = self._context.decode2(packet)
        except (av.error.FFmpegError, ValueError):
            self.failed += 1
            return
        if found is None:
            return
        if packet.pts is None:
            self.failed += 1
            return
        yield self._showing(found)

    def _showing(self, found: "SubtitleSet") -> Showing:
        # FFmpeg states the time in microseconds; the track has whole ticks.
        ticks = round(found.pts * _MICROSECOND / self._tick)
        time_s = ticks * self._tick
        start_s = time_s + found.start_display_time * _MILLISECOND
        ends = found.start_display_time < found.end_display_time < _NEVER_MS
        end_s = time_s + found.end_display_time * _MILLISECOND if ends else None
        return Showing(start_s, end_s, self._bitmap([each for each in found if isinstance(each, BitmapSubtitle)]))

    def _bitmap(self, parts: list[BitmapSubtitle]) -> Bitmap | None:
        width, height = canvas = self._canvas()
        shown = []
        for p in parts:
            box = max(0, p.x), max(0, p.y), min(width, p.x + p.width), min(height, p.y + p.height)
            if p.planes and box[0] < box[2] and box[1] < box[3]:
                shown.append((box, p))
        if not shown:
            return None
        left, top = (min(box[axis] for box, _ in shown) for axis in (0, 1))
        right, bottom = (max(box[axis] for box, _ in shown) for axis in (2, 3))
        whole = np.zeros((bottom - top, right - left, 4), np.uint8)
        for box, part in shown:
            inner = _samples(part)[box[1] - part.y : box[3] - part.y, box[0] - part.x : box[2] - part.x]
            under = whole[box[1] - top : box[3] - top, box[0] - left : box[2] - left]
            # A later rectangle covers earlier rectangles.
            np.copyto(under, inner, where=inner[..., 3:] > 0)
        return trimmed(canvas, left, top, whole)

    def _canvas(self) -> Size:
        width, height = subtitle_canvas(self._context)
        if not width or not height:
            return self._size
        if width * height > MOST_PIXELS:
            message = f"the subtitles have a canvas of {width}x{height}, more than {MOST_PIXELS} samples"
            raise InputTooLarge(message, "Leave out --burn-subtitles.")
        return width, height


def trimmed(canvas: Size, x: int, y: int, samples: Samples) -> Bitmap | None:
    """Return the non-transparent part of samples whose upper left corner is at (x, y); None if all are transparent."""
    rows, columns = (np.flatnonzero(samples[..., 3].any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return None
    top, bottom, left, right = int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1
    return Bitmap(canvas, x + left, y + top, samples[top:bottom, left:right])


def _samples(part: BitmapSubtitle) -> Samples:
    palette = np.frombuffer(subtitle_palette(part), np.uint8).reshape(-1, 4)[:, [2, 1, 0, 3]]
    plane: Any = part.planes[0]
    places = np.frombuffer(memoryview(plane), np.uint8).reshape(part.height, part.width)
    return np.asarray(palette[places])
