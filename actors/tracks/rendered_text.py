"""Renders text subtitles as bitmaps: white letters with a black edge, at the bottom of a canvas.

FreeType renders the caller's font in integers: the same text, font and Pillow give the same samples.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InputUnreadable, Unsupported
from .bitmaps import Bitmap, Size, trimmed

LINES_PER_HEIGHT: Final = 18
"""Canvas height divided by font size. If a canvas is narrower than 16:9, its height counts as that of a 16:9 canvas of
its width.
"""
_EDGE_SHARE: Final = 14
"""The letter size, in widths of the black edge."""
_WIDEST: Final = 90
"""The largest width of a line, in percent of the canvas."""
_NO_CHARACTER: Final = "\U0010ffff"
_FORMAT: Final = "Cf"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
_NAMED: Final = 12
"""An error message lists at most this many characters that the font lacks."""


class TextRenderer:
    """Renders lines in a font (TrueType or OpenType), on canvases of one size with square samples. Used by one thread.

    ``InputUnreadable`` if FreeType cannot read the font, ``Unsupported`` if Pillow is not installed.
    """

    def __init__(self, font: bytes, name: str, canvas: Size) -> None:
        try:
            from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - an optional dependency
        except ImportError:
            message = "text subtitles are rendered by Pillow, which is not installed"
            raise Unsupported(message, "pip install 'codecfleet[subtitles]'") from None
        self._image, self._draw = Image.new, ImageDraw.Draw
        self._name, self._canvas = name, canvas
        em = max(4, min(canvas[1], canvas[0] * 9 // 16) // LINES_PER_HEIGHT)
        try:
            self._font = ImageFont.truetype(BytesIO(font), em, layout_engine=ImageFont.Layout.BASIC)
        except (OSError, ValueError) as error:
            message = f"{name} is not a font that can be read: {error}"
            raise InputUnreadable(message, "Give a TrueType or OpenType file: --subtitle-font FONT.ttf") from None
        self._edge = max(1, em // _EDGE_SHARE)
        self._above, self._below = self._font.getmetrics()
        self._margin = em

    def check(self, texts: Iterable[str]) -> None:
        """Raise ``Unsupported`` if the font lacks a letter, or if a letter needs shaping or is written right to left.

        ``InputUnreadable`` if the font is damaged.
        """
        letters = sorted({letter for text in texts for letter in text if not letter.isspace()})
        shaped = [letter for letter in letters if _is_shaped(letter)]
        if shaped:
            message = f"the text has letters that need shaping or are written from right to left: {_named(shaped)}"
            raise Unsupported(
                message, "Burn the text in losslessly with FFmpeg (-vf subtitles=FILE), and transcode the result."
            )
        none = self._glyph(_NO_CHARACTER)
        missing = [letter for letter in letters if self._glyph(letter) == none]
        if missing:
            message = f"the font {self._name} lacks {_named(missing)}"
            raise Unsupported(message, "Give a font that has these letters: --subtitle-font FONT.ttf")

    def _glyph(self, letter: str) -> tuple[object, ...]:
        try:
            mask: Any = self._font.getmask(letter)
        except OSError as error:
            message = f"the font {self._name} is damaged at {_named([letter])}: {error}"
            raise InputUnreadable(message, "Give another font: --subtitle-font FONT.ttf") from None
        return mask.size, bytes(mask), self._font.getlength(letter)

    def bitmap(self, lines: Sequence[str]) -> Bitmap | None:
        """Return a bitmap of the lines that fit; None if the lines are blank."""
        width, height = self._canvas
        step = self._above + self._below
        broken = [part for line in lines for part in self._broken(line)][: max(1, (height - self._margin) // step)]
        lengths = [int(self._font.getlength(line)) for line in broken]
        # Letters may extend beyond their own width.
        block = max(lengths, default=0) + 4 * self._margin, step * len(broken) + 2 * self._edge
        fill, edge = self._image("L", block), self._image("L", block)
        for number, (line, length) in enumerate(zip(broken, lengths, strict=True)):
            place = (block[0] - length) // 2, self._edge + step * number
            self._draw(fill).text(place, line, fill=255, font=self._font)
            self._draw(edge).text(place, line, fill=255, font=self._font, stroke_width=self._edge)
        left, top = (width - block[0]) // 2, height - self._margin - step * len(broken) - self._edge
        return trimmed(self._canvas, left, top, _inked(np.asarray(fill), np.asarray(edge)))

    def _broken(self, line: str) -> Iterator[str]:
        """Yield a line in parts that are narrow enough, broken at spaces if possible."""
        most, part = self._canvas[0] * _WIDEST // 100, ""
        for word in line.split():
            longer = f"{part} {word}" if part else word
            if self._font.getlength(longer) <= most:
                part = longer
                continue
            if part:
                yield part
            part = word
            while self._font.getlength(part) > most and len(part) > 1:
                fits = self._fitting(part, most)
                yield part[:fits]
                part = part[fits:]
        if part:
            yield part

    def _fitting(self, word: str, most: int) -> int:
        return max(
            1, bisect_right(range(1, len(word)), most, key=lambda count: ceil(self._font.getlength(word[:count])))
        )


def plain_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a cue for rendering, with composed letters, and without control characters or blank lines."""
    composed = unicodedata.normalize("NFC", text)
    kept = (
        "".join(letter for letter in line if not _is_unseen(letter)) for line in composed.replace("\t", " ").split("\n")
    )
    return tuple(line for each in kept if (line := " ".join(each.split())))


def _is_unseen(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category == _FORMAT or (category == "Cc" and not letter.isspace()) or "\ufe00" <= letter <= "\ufe0f"


def _is_shaped(letter: str) -> bool:
    return unicodedata.category(letter) in _MARKS or unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT


def _named(letters: Sequence[str]) -> str:
    named = ", ".join(f"{letter} (U+{ord(letter):04X})" for letter in letters[:_NAMED])
    return f"{named} and {len(letters) - _NAMED} more" if len(letters) > _NAMED else named


def _inked(fill: NDArray[np.uint8], edge: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return R, G, B and alpha of white letters with a black edge."""
    alpha = np.maximum(edge, fill).astype(np.int32)
    white = 255 * fill.astype(np.int32) // np.maximum(1, alpha)
    return np.stack([white, white, white, alpha], axis=2).astype(np.uint8)
