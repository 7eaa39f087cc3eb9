"""Which tags of a source say something about its content, and which containers can hold them.

A tag that describes the old file (its brand, its muxer, its statistics) would be false in the new one and is left out
without a warning.
"""

import re
from collections.abc import Iterable

from .containers import Container

__all__ = ["kept_tags", "needs_free_keys", "unheld_tags"]

_ABOUT_THE_FILE = re.compile(
    r"""major_brand|minor_version|compatible_brands|encoder|software|duration|filesize|audiochannels|audiocodecid
        |videocodecid|audiodatarate|videodatarate|audiosamplerate|audiosamplesize|framerate|width|height|stereo
        |(bps|duration|number_of_frames|number_of_bytes)(-\w+)?|_statistics_.*|timecode|vendor_id|filename|mimetype
        |hasvideo|hasaudio|hasmetadata|haskeyframes|canseektoend|datasize|videosize|audiosize|lasttimestamp
        |lastkeyframetimestamp|metadatacreator|variant_bitrate|alpha_mode|rotate""",
    re.VERBOSE | re.IGNORECASE,
)

_ISOBMFF_KEYS = frozenset(
    {
        *("title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright", "grouping"),
        *("lyrics", "description", "synopsis", "show", "episode_id", "network", "keywords", "creation_time"),
    }
)
"""What the muxer writes as the boxes every player of mp4 and mov knows."""


def kept_tags(tags: Iterable[tuple[str, str]], container: Container, *, of_track: bool = False) -> dict[str, str]:
    """Return the tags worth carrying into ``container``, with their keys as it spells them."""
    kept = {key: value for key, value in tags if not _ABOUT_THE_FILE.fullmatch(key)}
    if of_track:
        kept = _track_tags(kept, container)
    return {_spelt(key, container): value for key, value in kept.items() if not _repeats(key, kept)}


def needs_free_keys(tags: Iterable[tuple[str, str]]) -> bool:
    """Tell whether an mp4 or mov can hold ``tags`` only under keys of their own, outside the well-known boxes."""
    return any(key.lower() not in _ISOBMFF_KEYS for key, _ in tags)


def unheld_tags(tags: Iterable[tuple[str, str]], container: Container, *, free_keys: bool) -> list[str]:
    """Return the keys of the source's tags that ``container`` cannot hold, sorted."""
    worth = kept_tags(tags, container)
    if not container.tags:
        return sorted(worth)
    if not container.is_isobmff or free_keys:
        return []
    return sorted(key for key in worth if key.lower() not in _ISOBMFF_KEYS)


def _track_tags(tags: dict[str, str], container: Container) -> dict[str, str]:
    # mp4's reader calls a track's title its name; handlers are a notion of mp4 and mov alone.
    named = {("title" if key.lower() == "name" else key): value for key, value in tags.items()}
    if container.is_isobmff:
        return named
    return {key: value for key, value in named.items() if key.lower() != "handler_name"}


def _spelt(key: str, container: Container) -> str:
    return key.lower() if container.is_isobmff and key.lower() in _ISOBMFF_KEYS else key


def _repeats(key: str, tags: dict[str, str]) -> bool:
    # mp4's reader gives a tag twice when it has a language: once as "location", once as "location-eng".
    base, dash, language = key.rpartition("-")
    return bool(dash) and len(language) == len("eng") and tags.get(base) == tags[key]
