"""Reads the whole subtitle track that is burnt in, once, because any segment may need earlier cues."""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import av.error
import numpy as np
from av.stream import Discard

from ....actors.media.opening import demux, open_source
from ....actors.segment.burn import Subtitle
from ....actors.tracks.bitmaps import BITMAP_CODECS, BitmapDecoder, Showing
from ....actors.tracks.rendered_text import TextRenderer
from ....errors import InputTooLarge, Unsupported, redacted
from ..tracks import SourceDescription, Track, TrackKind
from .burnt_text import TEXT_CODECS, Cue, read_cues, text_showings
from .overlay_file import content_of
from .read_result import ReadResult

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.subtitles.stream import SubtitleStream

    from ....actors.segment.steps import Size

#: The largest size of a track's compressed subtitles; a long film has about 20 MB
MOST_BYTES: Final = 128 << 20
#: The largest size of a font file; the largest fonts (Chinese, Japanese, Korean) need about 20 MB
MOST_FONT_BYTES: Final = 64 << 20
_OBJECT_BYTES: Final = 512  #: The memory that each subtitle takes in addition to its samples
_FAST: Final = 1  #: zlib's level
NEVER_S: Final = Fraction(1 << 40)  #: The end of a subtitle that states no end


@dataclass(frozen=True, slots=True, kw_only=True)
class BurntTrack:
    """The subtitles of a track, in order and without overlap."""

    subtitles: tuple[Subtitle, ...]
    sha256: str  #: The digest of all samples, places and times
    failed: int  #: How many packets did not decode


def burnt_track(source: SourceDescription, asked: int | str | None) -> Track | None:
    """Return the subtitle track with a number (from 0) or language; None if none is requested.

    Raises Unsupported: there is no such track, or it holds neither bitmaps nor plain text.
    """
    if asked is None:
        return None
    tracks = source.of_kind(TrackKind.SUBTITLE)
    if isinstance(asked, int):
        track = tracks[asked] if asked < len(tracks) else None
    else:
        track = next((each for each in tracks if (each.language or "").lower() == asked.lower()), None)
    if track is None:
        number = asked if isinstance(asked, int) else f"in {asked}"
        has = ", ".join(f"{n}: {each.codec} {each.language or ''}".rstrip() for n, each in enumerate(tracks)) or "none"
        message = f"{source.url} has no subtitle track {number}; it has {has}"
        raise Unsupported(message, "Count from 0, or name a language; `codecfleet probe` lists the tracks.")
    if track.codec not in BITMAP_CODECS | TEXT_CODECS:
        message = f"{track.name} cannot be burnt in: it is neither bitmaps (PGS, DVB, VobSub) nor plain text (SubRip)"
        raise Unsupported(
            message,
            "Burn the subtitles in with FFmpeg (-vf subtitles=FILE) and a lossless codec, and use FFmpeg's output.",
        )
    return track


@dataclass(frozen=True, slots=True)
class ReadBitmaps:
    """A track of bitmaps that was read, or the error that prevented reading it."""

    track: Track
    shown: ReadResult[BurntTrack]

    def burnt(self, _size: "Size", _shape: Fraction) -> BurntTrack:
        """Return the track's subtitles, or raise the error that prevented reading them."""
        return self.shown.get()


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text track and its font that were read, or the errors that prevented reading them."""

    track: Track
    cues: ReadResult[list[Cue]]
    font: str  #: The font file's name
    letters: ReadResult[bytes] | None  #: The font file's content; None if no font was named

    def burnt(self, size: "Size", shape: Fraction) -> BurntTrack:
        """Return the subtitles, rendered in square samples for pictures of ``size`` with this sample aspect ratio.

        Raises:
            InputError: the source or the font could not be read.
            InputTooLarge: the subtitles need more than ``MOST_BYTES``.
            Unsupported: there is no font, the font lacks letters, or letters need text shaping.
        """
        if self.letters is None:
            message = f"{self.track.name} is text, and needs a font that is the same on every node"
            raise Unsupported(message, "Name a font file: --subtitle-font FONT.ttf")
        renderer = TextRenderer(self.letters.get(), self.font, (max(1, round(size[0] * shape)), size[1]))
        return _burnt(text_showings(self.cues.get(), renderer), self.track)


def read_burnt(url: str, track: Track, size: "Size", font: str | None) -> ReadBitmaps | ReadText:
    """Read a whole track, and the font file if the track is text.

    ``size`` is the canvas of bitmaps that state no canvas.
    """
    if track.codec in TEXT_CODECS:
        letters = None if font is None else ReadResult.of(partial(_font_content, font))
        return ReadText(track, ReadResult.of(partial(_cues, url, track)), redacted(font or ""), letters)
    return ReadBitmaps(track, ReadResult.of(partial(_bitmaps, url, track, size)))


@contextmanager
def _opened(url: str, track: Track) -> "Iterator[tuple[InputContainer, SubtitleStream]]":
    with open_source(url) as container:
        stream = cast("SubtitleStream", container.streams[track.index])
        for each in container.streams:
            each.discard = Discard.default if each is stream else Discard.all
        yield container, stream


def _cues(url: str, track: Track) -> list[Cue]:
    with _opened(url, track) as (container, stream):
        return read_cues(container, stream, track.codec or "")


def _bitmaps(url: str, track: Track, size: "Size") -> BurntTrack:
    with _opened(url, track) as (container, stream):
        decoder = BitmapDecoder(stream, size)
        found = _burnt(_bitmap_showings(container, stream, decoder), track)
    return replace(found, failed=decoder.failed)


def _burnt(showings: Iterable[Showing], track: Track) -> BurntTrack:
    subtitles = in_order(_packed(showings, track))
    return BurntTrack(subtitles=subtitles, sha256=_digest(subtitles), failed=0)


def _font_content(font: str) -> bytes:
    return content_of(font, "font", "--subtitle-font", MOST_FONT_BYTES)


def font_sha256(font: str | None) -> str | None:
    """Return the SHA-256 of a font file; None if there is no font file.

    Raises InputError: the file cannot be read.
    """
    if font is None:
        return None
    return hashlib.sha256(_font_content(font)).hexdigest()


def _bitmap_showings(
    container: "InputContainer", stream: "SubtitleStream", decoder: BitmapDecoder
) -> Iterator[Showing]:
    with suppress(av.error.FFmpegError):  # the readable part of a damaged file is used
        for packet in demux(container, stream):
            yield from decoder.decode(packet)


@dataclass(frozen=True, slots=True, eq=False)
class PackedShowing:
    """A change of the screen at ``start_s``: ``subtitle`` (with its times unset) appears; None clears the screen."""

    start_s: Fraction
    end_s: Fraction | None
    subtitle: Subtitle | None


def _packed(showings: Iterable[Showing], track: Track) -> Iterator[PackedShowing]:
    total_bytes = 0
    for showing in showings:
        packed = _pack(showing)
        total_bytes += _OBJECT_BYTES + (0 if packed.subtitle is None else len(packed.subtitle.packed))
        if total_bytes > MOST_BYTES:
            message = f"the subtitles of {track.name} take more than {MOST_BYTES >> 20} MiB of memory"
            raise InputTooLarge(message, "Leave out --burn-subtitles.")
        yield packed


def _pack(showing: Showing) -> PackedShowing:
    bitmap = showing.bitmap
    if bitmap is None:
        return PackedShowing(showing.start_s, showing.end_s, None)
    height, width = bitmap.samples.shape[:2]
    samples = np.ascontiguousarray(bitmap.samples).data
    subtitle = Subtitle(
        start_s=Fraction(0),
        end_s=Fraction(0),
        canvas=bitmap.canvas,
        x=bitmap.x,
        y=bitmap.y,
        width=width,
        height=height,
        sha256=hashlib.sha256(samples).hexdigest(),
        packed=zlib.compress(samples, _FAST),
    )
    return PackedShowing(showing.start_s, showing.end_s, subtitle)


def in_order(showings: Iterable[PackedShowing]) -> tuple[Subtitle, ...]:
    """Return the subtitles and their times: each lasts until its own end or the next start, whichever is first.

    If several subtitles have the same start, the last one counts.
    """
    ordered = sorted(showings, key=lambda each: each.start_s)
    starts_s = [each.start_s for each in ordered]
    found: list[Subtitle] = []
    for showing, next_s in zip(ordered, [*starts_s[1:], NEVER_S], strict=False):
        end_s = next_s if showing.end_s is None else min(showing.end_s, next_s)
        if showing.subtitle is None or showing.start_s >= end_s:
            continue
        # DVB repeats pages; a repeated page is no new subtitle.
        is_again = found and (found[-1].end_s, found[-1].content) == (showing.start_s, showing.subtitle.content)
        start_s = found.pop().start_s if is_again else showing.start_s
        found.append(replace(showing.subtitle, start_s=start_s, end_s=end_s))
    return tuple(found)


def _digest(subtitles: Iterable[Subtitle]) -> str:
    digest = hashlib.sha256()
    for each in subtitles:
        digest.update(f"{each.start_s} {each.end_s} {each.content}\n".encode())
    return digest.hexdigest()
