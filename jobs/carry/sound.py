"""Decides which sound tracks are copied or mixed, and which layout encoded sound has. Pure."""

from collections.abc import Iterator, Sequence

from ...actors.tracks.audio import encoded_rate
from ...actors.tracks.downmix import encoded_layout, mix_matrix, mixed_speakers
from ...actors.tracks.speakers import MIXED, STATED, is_same_room, is_unnamed, speakers, usual_layout
from ...cluster.grouping import counted
from ..source.sound_life import in_words
from ..source.tracks import Track
from .containers import Container, SoundChanges
from .track_plan import Action, TrackPlan, content_checks

#: Codecs whose packets state the channels
_SELF_DESCRIBING = frozenset({"ac3", "eac3", "mp1", "mp2", "mp3", "dts", "flac"})
#: Source formats in which AAC's configuration may change by a further description, as packets do not hold it
_GIVES_DESCRIPTIONS = ("mov", "flv")
_FLAC_ALONE = {2: "stereo", 3: "3.0", 4: "quad", 5: "5.0(side)", 6: "5.1(side)", 7: "6.1", 8: "7.1"}
"""FLAC's layouts by number of channels, used if a file states no other layout (RFC 9639, 9.1.3)."""
SPEAKER_CHECKS = ("sound", "layout", "speakers")  #: The checks of ``verify`` that fail if speakers differ
_NAMELESS_IN_MP4 = frozenset({"DL", "DR", "BIL", "BIR"})
_MOST_NAMED_SILENTLY = 8


def mixed_to(track: Track, wanted: str) -> int | None:
    """Return the number of channels to which a track is mixed, or None if it is not mixed; ``wanted`` may be "keep"."""
    channels = next((count for count, layout in MIXED.items() if layout == wanted), None)
    return None if all(len(speakers(layout)) == channels for layout in layouts(track)) else channels


def layouts(track: Track) -> tuple[str, ...]:
    """Return the distinct layouts of a sound track, in the order in which they occur; () for other tracks."""
    if track.formats:
        return tuple(dict.fromkeys(found.layout for found in track.formats))
    return () if track.audio is None else (track.audio.layout,)


def later_formats(track: Track) -> tuple[tuple[str, int], ...]:
    """Return the layouts and rates of a track whose format changes; empty if the format never changes."""
    return tuple(dict.fromkeys((found.layout, found.sample_rate) for found in track.formats))


def stated_layouts(codec: str, container: Container) -> tuple[str, ...]:
    """Return the layouts that a codec can have in a container."""
    unread = container.unread_layouts.get(codec, ())
    return tuple(layout for layout in STATED[codec] if layout not in unread)


def output_layout(track: Track, codec: str, channels: int | None, container: Container) -> str:
    """Return the layout in which a track is encoded, mixed to ``channels``; None keeps as many channels as possible.

    Raises Unsupported: some channels of the track are not speakers in a room, and cannot be mixed.
    """
    stated = stated_layouts(codec, container)
    target = encoded_layout(layouts(track), stated) if channels is None else MIXED[channels]
    for layout in layouts(track):
        mix_matrix(speakers(layout), speakers(target))
    return target


def copy_obstacle(track: Track, container: Container, source_format: str) -> str | None:
    """Return why a track cannot be copied although the container holds its codec; None if a copy is possible."""
    if track.formats and not _holds_changes(track, container, source_format):
        return (
            f"its format changes ({in_words(track.formats)}), and .{container.name} states only one for {track.codec}"
        )
    layout = "" if track.audio is None else track.audio.layout
    codec = track.codec or ""
    is_refused = is_unnamed(layout) and codec in container.unnamed_refused
    if is_refused or layout in container.unread_layouts.get(codec, ()):
        return f".{container.name} cannot state {track.codec} in {layout}"
    if _needs_names(track, container) and is_unnamed(held_layout(track, container) or layout):
        count = counted(len(speakers(layout)), "channel")
        return f".{container.name} cannot hold {count} without names; .mov and .mkv can"
    return None


def _holds_changes(track: Track, container: Container, source_format: str) -> bool:
    changes = container.sound_changes
    if track.codec in _SELF_DESCRIBING:
        return changes is SoundChanges.PACKETS or len({found.sample_rate for found in track.formats}) == 1
    is_given = source_format.startswith(_GIVES_DESCRIPTIONS)
    # FFmpeg writes a further sample description only if the source has one, and headers in packets only if the source
    # has those.
    return track.codec == "aac" and changes is (SoundChanges.DESCRIPTIONS if is_given else SoundChanges.PACKETS)


def _needs_names(track: Track, container: Container) -> bool:
    return container.pcm_needs_names and (track.codec or "").startswith("pcm_")


def held_layout(track: Track, container: Container) -> str | None:
    """Return the layout with which a copy is labelled; None keeps the label of the source."""
    layout = "" if track.audio is None else track.audio.layout
    count = len(speakers(layout)) if layout else 0
    if is_unnamed(layout) and (count <= _MOST_NAMED_SILENTLY or _needs_names(track, container)):
        return usual_layout(layout)
    if _needs_names(track, container) and _NAMELESS_IN_MP4 & set(speakers(layout)):
        return usual_layout(f"{count} channels")
    return layout if track.formats else None


def sound_changes(plan: TrackPlan, container: Container) -> Iterator[tuple[str, str]]:
    """Yield the code and message of each format change in a kept track."""
    if not plan.track.formats or not plan.kept:
        return
    named = f"the format of {plan.track.name} changes: {in_words(plan.track.formats)}"
    if plan.action is Action.ENCODE:
        codec, rate = plan.codec or "", max(found.sample_rate for found in plan.track.formats)
        target = output_layout(plan.track, codec, plan.channels, container)
        yield "audio-format-changes", f"{named}; all of it is encoded as {target} at {encoded_rate(codec, rate)} Hz"
    else:
        yield "audio-format-changes", f"{named}; it is copied, and players must handle the change"


def remixed(name: str, codec: str, layout: str, target: str, mixed: tuple[str, ...]) -> str:
    """Return the message that one layout is mixed to another, which lacks the speakers ``mixed``."""
    which = "" if is_unnamed(usual_layout(layout)) else f", which has no separate speaker for {', '.join(mixed)}"
    return f"{codec} cannot state {layout}, the layout of {name}: it is mixed to {target}{which}"


def changed_checks(tracks: Sequence[TrackPlan], plan: TrackPlan) -> tuple[str, ...]:
    """Return the checks that may fail for a copy whose format changes, because the container states one format."""
    return content_checks(tracks, plan.track.index, "layout", "rate") if plan.action is Action.COPY else ()


def sound_losses(plan: TrackPlan, container: Container) -> Iterator[tuple[str, str]]:
    """Yield the code and message of each unrequested change to a kept track's layout."""
    track = plan.track
    if track.audio is None or not plan.kept:
        return
    if plan.action is Action.ENCODE and plan.channels is None:
        target = output_layout(track, plan.codec or "", None, container)
        for layout in layouts(track):
            if mixed := mixed_speakers(speakers(layout), speakers(target)):
                yield "audio-remixed", remixed(track.name, plan.codec or "", layout, target, mixed)
    if plan.action is Action.COPY:
        yield from _label_losses(track, container)


def _label_losses(track: Track, container: Container) -> Iterator[tuple[str, str]]:
    layout = "" if track.audio is None else track.audio.layout
    if is_unnamed(layout) or not layout:
        held = held_layout(track, container)
        if held is not None and held != layout and len(speakers(layout)) > _MOST_NAMED_SILENTLY:
            count = len(speakers(layout))
            message = f".{container.name} requires names for the {count} channels of {track.name}: those of {held}"
            yield "layout-assumed", message
        return
    taken = _taken_for(track, container)
    if taken is not None and not is_same_room(layout, taken, speakers(taken)):
        message = f".{container.name} cannot state {layout}, the layout of {track.name}: players take it for {taken}"
        yield "layout-dropped", message


def _taken_for(track: Track, container: Container) -> str | None:
    """Return the layout that players assume for a copy whose layout the container does not state."""
    count = 0 if track.audio is None else track.audio.channels
    if track.codec == "flac" and "flac" in container.channels_alone:
        return _FLAC_ALONE.get(count)
    is_pcm = (track.codec or "").startswith("pcm_")
    if is_pcm and "pcm" in container.channels_alone:
        return usual_layout(f"{count} channels")
    return held_layout(track, container) if is_pcm else None
