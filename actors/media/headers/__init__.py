"""Container headers: fields that FFmpeg does not read, changes that its muxers do not write, and file fragments."""

from .fragments import FILLER_BYTES, FilePart, Fragments, SplicedFile
from .language_tags import (
    LanguageForm,
    StatedLanguage,
    bcp_47,
    iso_639_2,
    language_changes,
    make_room,
    read_language_tags,
)
from .movie import TrackEnd, film_durations, has_several_descriptions, media_duration, track_end, track_number
from .watch import FragmentWatch, HeaderWatch

__all__ = [
    "FILLER_BYTES",
    "FilePart",
    "FragmentWatch",
    "Fragments",
    "HeaderWatch",
    "LanguageForm",
    "SplicedFile",
    "StatedLanguage",
    "TrackEnd",
    "bcp_47",
    "film_durations",
    "has_several_descriptions",
    "iso_639_2",
    "language_changes",
    "make_room",
    "media_duration",
    "read_language_tags",
    "track_end",
    "track_number",
]
