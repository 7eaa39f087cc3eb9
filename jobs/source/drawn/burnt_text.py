"""A text track that is burnt in: the cues, and which cues are on screen together."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import av.error

from ....actors.media.opening import demux
from ....actors.tracks.bitmaps import Showing
from ....actors.tracks.rendered_text import TextRenderer, plain_lines
from ....actors.tracks.subtitles import plain_cue, read_cue
from ....errors import InputTooLarge

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.stream import Stream

TEXT_CODECS: Final = frozenset({"subrip", "mov_text", "webvtt", "text"})  #: FFmpeg's names of plain text
MOST_AT_ONCE: Final = 16  #: The most cues on screen at the same time; people can read two or three
MOST_LETTERS: Final = 2_000  #: The most letters in one cue; that many fill the screen


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines shown in [start, end), in seconds on the source's clock; without ``end_s``, until the next cue starts."""

    start_s: Fraction
    end_s: Fraction | None
    lines: tuple[str, ...]


def read_cues(container: "InputContainer", stream: "Stream", codec: str) -> list[Cue]:
    """Return a text track's cues by time, without styles.

    Raises InputTooLarge: a cue has over ``MOST_LETTERS`` letters.
    """
    found = []
    with suppress(av.error.FFmpegError):  # the readable part of a damaged file is used
        for packet in demux(container, stream):
            if packet.pts is None:
                continue
            tick_s = Fraction(packet.time_base)
            lines = plain_lines(plain_cue(read_cue(codec, bytes(packet))))
            if (letters := sum(map(len, lines))) > MOST_LETTERS:
                message = f"subtitle track {stream.index} has a cue of {letters} letters; at most {MOST_LETTERS} fit"
                raise InputTooLarge(message, "Leave out --burn-subtitles.")
            start_s = packet.pts * tick_s
            found.append(Cue(start_s, start_s + packet.duration * tick_s if packet.duration else None, lines))
    return sorted(found, key=lambda cue: cue.start_s)


def ended(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Yield cues in the order of their times, each with its end; the last cue may have no end."""
    for cue, following in pairwise([*cues, None]):
        if cue is not None:
            end_s = following.start_s if cue.end_s is None and following is not None else cue.end_s
            yield replace(cue, end_s=end_s)


def on_screen(cues: Sequence[Cue]) -> Iterator[tuple[Fraction, tuple[str, ...]]]:
    """Yield the lines on screen after each change. If cues are shown together, the earliest is at the bottom.

    Raises InputTooLarge: more than ``MOST_AT_ONCE`` cues at a time.
    """
    waiting = [cue for cue in ended(cues) if cue.lines and (cue.end_s is None or cue.start_s < cue.end_s)]
    starts = iter(waiting)
    coming = next(starts, None)
    shown: list[Cue] = []
    while coming is not None or shown:
        ends = [cue.end_s for cue in shown if cue.end_s is not None]
        changes = [*ends, *([coming.start_s] if coming is not None else [])]
        if not changes:
            return
        time_s = min(changes)
        shown = [cue for cue in shown if cue.end_s is None or cue.end_s > time_s]
        while coming is not None and coming.start_s == time_s:
            shown.append(coming)
            coming = next(starts, None)
        if len(shown) > MOST_AT_ONCE:
            message = f"more than {MOST_AT_ONCE} subtitles are shown at once, at {float(time_s):.3f} s"
            raise InputTooLarge(message, "Leave out --burn-subtitles.")
        yield time_s, tuple(line for cue in reversed(shown) for line in cue.lines)


def text_showings(cues: Sequence[Cue], renderer: TextRenderer) -> Iterator[Showing]:
    """Yield rendered cues. Raises InputTooLarge; Unsupported: the font lacks letters, or letters need text shaping."""
    renderer.check(line for cue in cues for line in cue.lines)
    for time_s, lines in on_screen(cues):
        yield Showing(time_s, None, renderer.bitmap(lines) if lines else None)
