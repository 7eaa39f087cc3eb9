"""What a track is for (default, forced, commentary ...), and which containers keep it."""

from functools import reduce
from operator import or_

from av.stream import Disposition

from ..source.tracks import Track, TrackKind
from .containers import Container


def _flags(*flags: Disposition) -> int:
    return reduce(or_, (int(flag) for flag in flags))


_D = Disposition
_ALWAYS = _flags(_D.default, _D.attached_pic, _D.timed_thumbnails, _D.still_image, _D.dependent, _D.metadata)
"""Kept everywhere that counts, or about how a track is stored and not what it is for."""
_SPOKEN = _flags(_D.hearing_impaired, _D.visual_impaired, _D.comment, _D.dub)
_HELD = {
    "mp4": _SPOKEN | _flags(_D.captions, _D.descriptions),
    "mov": 0,
    "matroska": _SPOKEN | _flags(_D.forced, _D.original),
    "webm": _flags(_D.forced),
}
_HELD_OF_SUBTITLES = {"matroska": _flags(_D.descriptions), "webm": _flags(_D.captions, _D.descriptions)}
"""By FFmpeg's muxers, besides the default; each was written and read back."""


def lost_dispositions(track: Track, container: Container) -> list[str]:
    """Return the names of what a track is for, and ``container`` does not say."""
    held = _ALWAYS | _HELD.get(container.muxer, 0)
    if track.kind is TrackKind.SUBTITLE:
        held |= _HELD_OF_SUBTITLES.get(container.muxer, 0)
    return sorted(str(flag.name) for flag in Disposition if track.disposition & int(flag) & ~held)
