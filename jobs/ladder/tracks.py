"""The tracks of finished renditions, from which the package is made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from av.stream import Disposition

from ...actors.media.headers import bcp_47
from ...errors import Unsupported, WouldLose
from ..carry.track_plan import Action, TrackPlan, missed_checks
from ..package.boxes.codec_strings import SOUND_CODECS
from ..package.values import GivenTrack, PlayedKind
from ..plan.plan import Plan
from ..report.report import Warning_
from ..source.tracks import SourceDescription, TrackKind, describe_tracks, tag_value

SIDES: Final = {TrackKind.AUDIO: (PlayedKind.AUDIO, "sound"), TrackKind.SUBTITLE: (PlayedKind.TEXT, "text")}
"""The kinds of tracks that a package has besides video, and the words that begin the tracks' names."""
_PLAYED: Final = {TrackKind.AUDIO: SOUND_CODECS, TrackKind.SUBTITLE: frozenset({"mov_text"})}
"""The codecs that mp4 holds and players of a package know."""
_ONE: Final = "a ladder has one video track"
_DROPPED: Final = "video-track-dropped"


def is_playable(plan: TrackPlan) -> bool:
    """Return whether players of a package know the codec of a track in the output."""
    return plan.track.kind not in _PLAYED or plan.codec in _PLAYED[plan.track.kind]


def only_played(plan: Plan) -> Plan:
    """Return the plan of the rendition with sound and subtitles, without the source's further video tracks.

    Raises Unsupported: players of a package do not know a track's codec; WouldLose: with ``strict``, a further video
    track.
    """
    carry = plan.carry
    for each in carry.tracks:
        if each.kept and not is_playable(each):
            step = "Use --audio aac or opus." if each.track.kind is TrackKind.AUDIO else "Use --subtitles none."
            raise Unsupported(f"players cannot play {each.track.name} in a ladder", step)
    dropped = {
        each: replace(each, action=Action.DROP, codec=None, reason=_ONE, loss=_DROPPED)
        for each in carry.tracks
        if each.kept and each.track.kind is TrackKind.VIDEO
    }
    losses = tuple(
        Warning_(code=_DROPPED, message=f"{each.track.name} is dropped: {_ONE}", checks=missed_checks(each))
        for each in dropped.values()
    )
    if losses and plan.spec.strict:
        raise WouldLose("; ".join(each.message for each in losses), "Leave out --strict to accept this.")
    carry = replace(carry, tracks=tuple(dropped.get(each, each) for each in carry.tracks))
    return replace(plan, carry=carry, warnings=(*plan.warnings, *losses))


def sound_names(count: int) -> list[str]:
    """Return the names of this many sound tracks."""
    return [f"{SIDES[TrackKind.AUDIO][1]}-{number}" for number in range(1, count + 1)]


def given_tracks(files: Mapping[str, Path], groups: Sequence[tuple[str, ...]] = ()) -> tuple[GivenTrack, ...]:
    """Return the video track of each rendition, with the rendition's name, and the sound and subtitles of the first.

    ``groups`` has the groups of each sound track; () if the preset names none.

    Raises InputError: a file cannot be read.
    """
    pictures = [given_video(name, path) for name, path in files.items()]
    return (*pictures, *given_sides(next(iter(files.values())), groups))


def given_video(name: str, path: Path) -> GivenTrack:
    """Return the video track of a file. Raises InputError: the file cannot be read."""
    index = describe_tracks(str(path)).of_kind(TrackKind.VIDEO)[0].index
    return GivenTrack(name=name, path=path, stream=index, kind=PlayedKind.VIDEO)


def given_sides(path: Path, groups: Sequence[tuple[str, ...]] = ()) -> tuple[GivenTrack, ...]:
    """Return the sound and subtitles of a file. Raises InputError: the file cannot be read."""
    return tuple(_sides(path, describe_tracks(str(path)), groups))


def _sides(path: Path, file: SourceDescription, groups: Sequence[tuple[str, ...]]) -> Iterator[GivenTrack]:
    for source_kind, (kind, word) in SIDES.items():
        for number, track in enumerate(file.of_kind(source_kind), 1):
            yield GivenTrack(
                name=f"{word}-{number}",
                path=path,
                stream=track.index,
                kind=kind,
                language=track.language_tag or (None if track.language is None else bcp_47(track.language)),
                title=tag_value(track.tags, "title") or "",
                is_default=bool(track.disposition & Disposition.default.value),
                is_forced=bool(track.disposition & Disposition.forced.value),
                groups=groups[number - 1] if groups and kind is PlayedKind.AUDIO else (),
            )
