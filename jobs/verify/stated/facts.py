"""What a container states of itself and its tracks, in one form for all kinds; and the bytes to read it from."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ....actors.media.structure import Readable

BLOCK_BYTES: Final = 1 << 16
TOP_FIRST: Final = {1: True, 9: True, 6: False, 14: False}  # 9 and 14: interleaved lines, by QuickTime's headers


class StatedKind(StrEnum):
    """What a track holds."""

    VIDEO = "video"
    AUDIO = "audio"
    SUBTITLES = "subtitles"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StatedCrop:
    """What a container cuts off each picture, in samples."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    def __bool__(self) -> bool:
        return (self.left, self.top, self.right, self.bottom) != (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a track's samples lie in time, as the boxes or blocks say; in seconds."""

    samples: int  # how many there are
    shortest_s: Fraction  # the shortest but for the last in decoding order; 0 where none is stated
    total_s: Fraction | None  # what their durations amount to; None where the container states no duration for each
    end_s: Fraction  # when the last one shown ends, on the track's own clock
    last_s: Fraction | None  # how long the last one shown is shown; None where the container does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTrack:
    """A track as its header and its samples describe it."""

    kind: StatedKind
    language_tag: str = ""  # BCP 47's name of its language; "" where the container has none
    crop: StatedCrop = field(default_factory=StatedCrop)
    alpha: bool = False  # whether blocks have an alpha plane beside the picture
    top_field_first: bool | None = None  # None: not stated, or progressive pictures
    timecode_rate: Fraction | None = None  # how many pictures a second a track of timecodes counts
    spread: Spread | None = None  # None where it has no samples
    disagreements: tuple[str, ...] = ()  # where its header's durations and its samples do not agree


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFile:
    """A file as its container describes it."""

    tracks: tuple[StatedTrack, ...]
    missing_bytes: int = 0  # how many bytes its last box, element or sample has past the end of the file
    disagreements: tuple[str, ...] = ()  # where the file's header and its tracks do not agree

    def of(self, kind: StatedKind) -> Sequence[StatedTrack]:
        """Return the tracks of a kind, in the file's order."""
        return [track for track in self.tracks if track.kind is kind]


class FileBytes:
    """A file's bytes, read in blocks. ``size`` is the file's length in bytes."""

    def __init__(self, file: "Readable") -> None:
        self._file = file
        self.size = file.seek(0, os.SEEK_END)
        self._begin = 0
        self._block = b""

    def read(self, place: int, count: int) -> bytes:
        """Return ``count`` bytes from ``place`` on, fewer at the end of the file."""
        offset = place - self._begin
        if offset < 0 or offset + count > len(self._block):
            self._file.seek(place)
            self._begin, self._block, offset = place, self._whole(max(count, BLOCK_BYTES)), 0
        return self._block[offset : offset + count]

    def _whole(self, count: int) -> bytes:
        parts = []
        while count > 0 and (part := self._file.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
