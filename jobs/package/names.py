"""The names of a package's files, and the forms of names and titles that manifests allow."""

import unicodedata
from urllib.parse import quote

from .values import GivenTrack, Layout, PlayedKind

MASTER = "master.m3u8"  #: The HLS playlist of all tracks
MANIFEST = "manifest.mpd"  #: The DASH manifest

#: Unicode categories that HLS or XML forbids in a text, or that break its line.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cn", "Cs", "Zl", "Zp"})


def track_file(track: GivenTrack) -> str:
    """Return the name of a track's only file. All tracks have one in ``Layout.RANGES``, and text in both layouts."""
    return f"{track.name}.{'vtt' if track.kind is PlayedKind.TEXT else 'mp4'}"


def header_file(track: GivenTrack) -> str:
    """Return the file of a track's header in ``Layout.FILES``."""
    return f"{track.name}/init.mp4"


def segment_file(track: GivenTrack, number: int) -> str:
    """Return the file of a track's segment in ``Layout.FILES``; the first has the number 1."""
    return f"{track.name}/{number:05d}.m4s"


def segment_template(track: GivenTrack) -> str:
    """Return the relative URL of ``segment_file`` as a DASH template, in which the player puts the number."""
    return f"{reference(track.name)}/$Number%05d$.m4s"


def playlist_file(track: GivenTrack) -> str:
    """Return the file of a track's HLS playlist."""
    return f"{track.name}.m3u8"


def keyframes_file(track: GivenTrack) -> str:
    """Return the file of the HLS playlist with a video track's keyframes."""
    return f"{track.name}-keyframes.m3u8"


def has_one_file(track: GivenTrack, layout: Layout) -> bool:
    """Return whether all bytes of a track are in one file."""
    return layout is Layout.RANGES or track.kind is PlayedKind.TEXT


def track_files(track: GivenTrack, layout: Layout, segments: int) -> tuple[str, ...]:
    """Return the names of all files of a track, in the order of its bytes."""
    if has_one_file(track, layout):
        return (track_file(track),)
    return header_file(track), *(segment_file(track, number) for number in range(1, segments + 1))


def reference(file: str) -> str:
    """Return a file's name as a relative URL."""
    return quote(file, safe="/")


def one_line(text: str) -> str:
    """Return a text as one line: white space and characters that a manifest cannot hold become single spaces."""
    kept = (" " if unicodedata.category(each) in _REFUSED_CATEGORIES else each for each in text.replace("\ufeff", " "))
    return " ".join("".join(kept).split())
