"""What a container's header says and FFmpeg does not: read from the bytes that opening a file reads anyway."""

from .iso_639 import iso_639_2
from .language_tags import StatedLanguage, make_room, read_language_tags, state_language_tags
from .watch import HeaderWatch

__all__ = [
    "HeaderWatch",
    "StatedLanguage",
    "iso_639_2",
    "make_room",
    "read_language_tags",
    "state_language_tags",
]
