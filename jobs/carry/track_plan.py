"""What becomes of one track of the source, and which checks of ``verify`` look at it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal

from ..report.report import TrackReport
from ..source.tracks import Track, TrackKind

_TRACK_CHECKS = {
    TrackKind.VIDEO: "tracks.video",
    TrackKind.AUDIO: "tracks.audio",
    TrackKind.SUBTITLE: "tracks.subtitles",
    TrackKind.DATA: "tracks.data",
    TrackKind.ATTACHMENT: "metadata.attachments",
    TrackKind.COVER: "metadata.cover",
}
"""The check that misses a dropped track."""


class Action(Enum):
    """What becomes of one track."""

    COPY = "copied"
    CONVERT = "converted"
    ENCODE = "encoded"
    DROP = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTimes:
    """What the index knows of the encoded track's pictures."""

    rate: Fraction | None = None  #: How many there are in a second; None where only the container says it
    skipped_s: Fraction = Fraction(0)  #: Between the source's first picture and the output's first one
    end_s: Fraction = Fraction(0)  #: When the source's pictures end, on its clock


@dataclass(frozen=True, slots=True)
class TrackPlan:
    """One track's fate."""

    track: Track
    action: Action
    codec: str | None  #: The output's; None where nothing is written
    reason: str
    loss: str | None = None  #: A stable code, if something is lost that was not asked to go
    asked: bool = False  #: Whether it was asked to go
    bit_rate_bps: int | None = None  #: Of encoded sound; None for the usual one
    channels: int | None = None  #: What encoded sound is mixed to; None for its own
    loudness_lufs: Fraction | None = None  #: What encoded sound is brought to; None for its own

    @property
    def kept(self) -> bool:
        """Whether the output has a track of its own for it."""
        return self.action is not Action.DROP and self.codec not in ("timecode", "chapters")

    @property
    def report(self) -> TrackReport:
        """The same, for the job's report."""
        action: Literal["encoded", "copied", "converted", "dropped"] = self.action.value
        return TrackReport(
            kind=self.track.kind.value,
            source_index=self.track.index,
            codec=self.track.codec or self.track.tag or "unknown",
            language=self.track.language,
            action=action,
            output_codec=self.codec,
            reason=self.reason,
        )


_LABELS = {TrackKind.AUDIO: "audio", TrackKind.SUBTITLE: "subtitles"}  #: Kinds that ``verify`` has checks for


def content_checks(tracks: Sequence[TrackPlan], index: int, *words: str) -> tuple[str, ...]:
    """Return the names of the checks of a track's content, by its stream index: only those ``words``, or all."""
    if (found := _numbered(tracks, index)) is None:
        return ()
    name = ".".join(found)
    return tuple(f"{name}.{word}" for word in words) or (name,)


def label_checks(tracks: Sequence[TrackPlan], index: int, label: str) -> tuple[str, ...]:
    """Return the name of the check of a track's ``language``, ``title`` or ``disposition``."""
    found = _numbered(tracks, index)
    return () if found is None else (f"metadata.{label}.{'-'.join(found)}",)


def _numbered(tracks: Sequence[TrackPlan], index: int) -> tuple[str, str] | None:
    """Return a track's label and number as ``verify`` counts: the tracks of a kind, asked for, that FFmpeg knows."""
    kind = next(plan.track.kind for plan in tracks if plan.track.index == index)
    counted = [plan.track for plan in tracks if not plan.asked]
    number = sum(track.kind is kind and track.decodable and track.index < index for track in counted)
    return (_LABELS[kind], str(number)) if kind in _LABELS else None


def missed_checks(track: TrackPlan) -> tuple[str, ...]:
    """Return the checks of verify that miss a track; none where it is kept."""
    if track.action is not Action.DROP:
        return ()
    return ("metadata.timecode",) if track.track.tag == "tmcd" else (_TRACK_CHECKS[track.track.kind],)
