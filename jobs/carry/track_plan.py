"""The plan for one track of the source, and the checks of ``verify`` that cover the track."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, TypeAlias

from ..report.report import TrackReport
from ..source.tracks import Track, TrackKind

SoundKey: TypeAlias = tuple[int, int]  #: The stream index of a sound track, and ``TrackPlan.encoding``
_TRACK_CHECKS = {
    TrackKind.VIDEO: "tracks.video",
    TrackKind.AUDIO: "tracks.audio",
    TrackKind.SUBTITLE: "tracks.subtitles",
    TrackKind.DATA: "tracks.data",
    TrackKind.ATTACHMENT: "metadata.attachments",
    TrackKind.COVER: "metadata.cover",
}
"""The check that fails if a track of this kind is missing."""


class Action(Enum):
    """How the output treats a track of the source."""

    COPY = "copied"
    CONVERT = "converted"
    ENCODE = "encoded"
    DROP = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTimes:
    """Times of the encoded track's pictures, from the index."""

    rate: Fraction | None = None  #: pictures per second; None if only the container states the rate
    skipped_s: Fraction = Fraction(0)  #: the time from the source's first picture to the output's first picture
    end_s: Fraction = Fraction(0)  #: when the source's pictures end, on the source's clock


@dataclass(frozen=True, slots=True)
class TrackPlan:
    """The decision about one track of the source, and its reason."""

    track: Track
    action: Action
    codec: str | None  #: the output's codec; None if the track is dropped
    reason: str
    loss: str | None = None  #: a stable code for an unrequested loss; None if there is none
    asked: bool = False  #: whether the track is dropped at the user's request
    bit_rate_bps: int | None = None  #: the bit rate of encoded sound; None for the default
    channels: int | None = None  #: the number of channels to which encoded sound is mixed; None to keep all
    loudness_lufs: Fraction | None = None  #: the loudness of encoded sound; None to keep the source's loudness
    encoding: int = 0  #: numbers the plans of one track, if the output has several encodings of it

    @property
    def key(self) -> SoundKey:
        """A key that no other plan of the output has."""
        return self.track.index, self.encoding

    @property
    def kept(self) -> bool:
        """Whether the output has this track."""
        return self.action is not Action.DROP and self.codec not in ("timecode", "chapters")

    @property
    def report(self) -> TrackReport:
        """The plan as it appears in the job's report."""
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


#: The kinds of tracks for which ``verify`` has checks
_LABELS = {TrackKind.AUDIO: "audio", TrackKind.SUBTITLE: "subtitles"}


def content_checks(tracks: Sequence[TrackPlan], index: int, *words: str) -> tuple[str, ...]:
    """Return the names of a track's content checks, by default all of them; ``index`` is the stream index."""
    if (found := _numbered(tracks, index)) is None:
        return ()
    name = ".".join(found)
    return tuple(f"{name}.{word}" for word in words) or (name,)


def label_checks(tracks: Sequence[TrackPlan], index: int, label: str) -> tuple[str, ...]:
    """Return the name of the check of a track's ``language``, ``title`` or ``disposition``."""
    found = _numbered(tracks, index)
    return () if found is None else (f"metadata.{label}.{'-'.join(found)}",)


def _numbered(tracks: Sequence[TrackPlan], index: int) -> tuple[str, str] | None:
    """Return a track's label, and its number in ``verify`` among the requested, decodable tracks of the same kind."""
    kind = next(plan.track.kind for plan in tracks if plan.track.index == index)
    counted = [plan.track for plan in tracks if not plan.asked and not plan.encoding]
    number = sum(track.kind is kind and track.decodable and track.index < index for track in counted)
    return (_LABELS[kind], str(number)) if kind in _LABELS else None


def missed_checks(track: TrackPlan) -> tuple[str, ...]:
    """Return the checks that fail if a track is missing; none if the track is kept."""
    if track.action is not Action.DROP:
        return ()
    return ("metadata.timecode",) if track.track.tag == "tmcd" else (_TRACK_CHECKS[track.track.kind],)
