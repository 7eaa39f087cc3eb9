"""What the output lacks of its source, though no option asked for that. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.tracks import SourceDescription, Track
from .chapters import row_losses
from .sound import SPEAKER_CHECKS, sound_losses
from .tags import lost_dispositions, unheld_tags
from .track_plan import TrackPlan, content_checks, label_checks, missed_checks

if TYPE_CHECKING:
    from .carry import CarryPlan


def losses_of(plan: "CarryPlan", source: SourceDescription, spec: TranscodeSpec) -> Iterator[Warning_]:
    """Yield a warning for each thing of ``source`` that the output lacks."""
    name = plan.container.name
    for track in plan.tracks:
        yield from _track_losses(plan, track)
    if plan.video is not None and plan.container.holds_tracks:
        yield from _label_losses(plan, plan.video)
    if source.chapters and not plan.chapters:
        message = f"{len(source.chapters)} chapters are lost in .{name}"
        yield Warning_(code="chapters-dropped", message=message, checks=("metadata.chapters",))
    if plan.chapters and plan.container.chapters_in_a_row:
        yield from row_losses(plan.chapters, plan.container, plan.end_s)
    if source.timecode is not None and plan.timecode is None and not any(t.track.tag == "tmcd" for t in plan.tracks):
        where = "at another frame rate" if spec.fps else f"in .{name}"
        message = f"the timecode {source.timecode} is lost {where}"
        yield Warning_(code="timecode-dropped", message=message, checks=("metadata.timecode",))
    if renamed := sorted(key for key, _ in plan.tags if not plan.container.spaced_tags and " " in key):
        message = f"tags are renamed in .{name}, whose names have no spaces: {', '.join(renamed)}"
        yield Warning_(code="tags-renamed", message=message, checks=("metadata.tags",))
    if lost := unheld_tags(source.tags, plan.container, free_keys=plan.free_keys):
        message = f"tags are lost in .{name}: {', '.join(lost)}"
        yield Warning_(code="tags-dropped", message=message, checks=("metadata.tags",))


def _track_losses(plan: "CarryPlan", track: TrackPlan) -> Iterator[Warning_]:
    described = track.track
    if track.loss is not None:
        message = f"{described.name} is {track.action.value}: {track.reason}"
        yield Warning_(code=track.loss, message=message, checks=missed_checks(track))
    for code, message in sound_losses(track, plan.container):
        yield Warning_(code=code, message=message, checks=content_checks(plan.tracks, described.index, *SPEAKER_CHECKS))
    if track.kept:
        yield from _label_losses(plan, described)


def _label_losses(plan: "CarryPlan", track: Track) -> Iterator[Warning_]:
    """Name what the container does not say of a track that it holds."""
    name, language = plan.container.name, track.language

    def checks(label: str) -> tuple[str, ...]:
        """Return what sees the loss; ``verify`` has no such check of the encoded track."""
        return () if track is plan.video else label_checks(plan.tracks, track.index, label)

    if language is not None and plan.container.language(language) is None:
        message = f".{name} cannot name the language of {track.name}"
        yield Warning_(code="language-dropped", message=message, checks=checks("language"))
    if track.language_tag is not None and plan.container.language_tags is None:
        message = f".{name} states the language of {track.name} without {track.language_tag}"
        yield Warning_(code="language-shortened", message=message, checks=checks("language"))
    if lost := lost_dispositions(track, plan.container):
        message = f".{name} does not say that {track.name} is {', '.join(lost)}"
        yield Warning_(code="disposition-dropped", message=message, checks=checks("disposition"))
