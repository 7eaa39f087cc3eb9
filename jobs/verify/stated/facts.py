"""What a container states of itself and its tracks, in one form for mp4, mov, Matroska and WebM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction


class StatedKind(StrEnum):
    """What a track holds."""

    VIDEO = "video"
    AUDIO = "audio"
    SUBTITLES = "subtitles"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StatedCrop:
    """What a container cuts off each picture, in samples of it."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    def __bool__(self) -> bool:
        return (self.left, self.top, self.right, self.bottom) != (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a track's samples lie in time, as the boxes or blocks say; in seconds."""

    samples: int
    """How many there are."""
    shortest_s: Fraction
    """The shortest time that is stated of any but the last one in decoding order; 0 where none is stated."""
    total_s: Fraction | None
    """What their durations amount to; None where the container states no duration for each."""
    end_s: Fraction
    """When the last one shown ends, on the track's own clock."""
    last_s: Fraction | None
    """How long the last one shown is shown; None where the container does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTrack:
    """A track as its header and its samples describe it."""

    kind: StatedKind
    language_tag: str = ""
    """BCP 47's name of its language; "" where the container has none."""
    crop: StatedCrop = field(default_factory=StatedCrop)
    alpha: bool = False
    """Whether blocks have an alpha plane beside the picture."""
    top_field_first: bool | None = None
    """The field order that the container states; None where it states none, or progressive pictures."""
    timecode_rate: Fraction | None = None
    """How many pictures a second a track of timecodes counts."""
    spread: Spread | None = None
    """None where it has no samples."""
    disagreements: tuple[str, ...] = ()
    """Where its header's durations and its samples do not agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFile:
    """A file as its container describes it."""

    tracks: tuple[StatedTrack, ...]
    missing_bytes: int = 0
    """How many bytes its last box, element or sample has past the end of the file."""
    disagreements: tuple[str, ...] = ()
    """Where the file's header and its tracks do not agree."""

    def of(self, kind: StatedKind) -> Sequence[StatedTrack]:
        """Return the tracks of a kind, in the file's order."""
        return [track for track in self.tracks if track.kind is kind]
