"""Types for the facts that a container states about itself and its tracks, and for the bytes of a file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ....actors.media.structure import Readable

BLOCK_BYTES: Final = 1 << 16
# in the headers of QuickTime, 9 and 14 mean interleaved lines
TOP_FIRST: Final = {1: True, 9: True, 6: False, 14: False}


class StatedKind(StrEnum):
    """The kind of a track's content."""

    VIDEO = "video"
    AUDIO = "audio"
    SUBTITLES = "subtitles"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StatedCrop:
    """The samples that a container hides at each edge of a picture."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    def __bool__(self) -> bool:
        return (self.left, self.top, self.right, self.bottom) != (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The times of a track's samples, in seconds, according to the boxes or blocks."""

    samples: int  # how many samples there are
    shortest_s: Fraction  # the shortest duration, not counting the sample decoded last; 0 if no duration is stated
    total_s: Fraction | None  # the sum of all durations; None if the container does not state all of them
    end_s: Fraction  # the end of the sample shown last, on the track's clock
    last_s: Fraction | None  # the duration of the sample shown last; None if it is not stated


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTrack:
    """The facts that the container states about one track, in its header and with its samples."""

    kind: StatedKind
    language_tag: str = ""  # the track's language by BCP 47; "" if it is not stated
    crop: StatedCrop = field(default_factory=StatedCrop)
    alpha: bool = False  # whether blocks have an alpha plane in addition to the picture
    top_field_first: bool | None = None  # None if the field order is not stated, or if pictures are progressive
    timecode_rate: Fraction | None = None  # the frame rate of a timecode track; None for others
    spread: Spread | None = None  # None for a track without samples
    disagreements: tuple[str, ...] = ()  # contradictions between the track's header and its samples, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFile:
    """The facts that the container states about the file."""

    tracks: tuple[StatedTrack, ...]
    missing_bytes: int = 0  # how many bytes of the last box, element or sample are missing at the end of the file
    disagreements: tuple[str, ...] = ()  # contradictions between the header of the file and its tracks, in words

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
        """Return ``count`` bytes from ``place`` on, or fewer at the end of the file."""
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
