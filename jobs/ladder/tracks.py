"""The tracks of finished renditions, from which the package is made."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from av.stream import Disposition

from ...actors.media.headers import bcp_47
from ..package.values import GivenTrack, PlayedKind
from ..source.tracks import SourceDescription, TrackKind, describe_tracks, tag_value

_SIDES: Final = {TrackKind.AUDIO: (PlayedKind.AUDIO, "sound"), TrackKind.SUBTITLE: (PlayedKind.TEXT, "text")}
"""The kinds of tracks that a package has besides video, and the words that begin the tracks' names."""


def given_tracks(files: Mapping[str, Path]) -> tuple[GivenTrack, ...]:
    """Return the video track of each rendition, with the rendition's name, and the sound and subtitles of the first.

    Raises InputError: a file cannot be read.
    """
    found = {name: describe_tracks(str(path)) for name, path in files.items()}
    pictures = [
        GivenTrack(name=name, path=files[name], stream=each.of_kind(TrackKind.VIDEO)[0].index, kind=PlayedKind.VIDEO)
        for name, each in found.items()
    ]
    first = next(iter(files))
    return (*pictures, *_sides(files[first], found[first]))


def _sides(path: Path, file: SourceDescription) -> Iterator[GivenTrack]:
    for source_kind, (kind, word) in _SIDES.items():
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
            )
