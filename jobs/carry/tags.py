"""Decides which tags and dispositions are carried, and which containers hold them.

Tags about the old file (brand, muxer, statistics) would be false in the output and are dropped silently.
"""

import re
from collections.abc import Iterable

from av.stream import Disposition

from ..source.tracks import Track
from .containers import COMMON_TAGS, Container

_ABOUT_THE_FILE = re.compile(
    r"""major_brand|minor_version|compatible_brands|encoder|software|duration|filesize|audiochannels|audiocodecid
        |videocodecid|audiodatarate|videodatarate|audiosamplerate|audiosamplesize|framerate|width|height|stereo
        |(bps|duration|number_of_frames|number_of_bytes)(-\w+)?|_statistics_.*|timecode|vendor_id|filename|mimetype
        |hasvideo|hasaudio|hasmetadata|haskeyframes|canseektoend|datasize|videosize|audiosize|lasttimestamp
        |lastkeyframetimestamp|metadatacreator|variant_bitrate|alpha_mode|rotate""",
    re.VERBOSE | re.IGNORECASE,
)


def kept_tags(tags: Iterable[tuple[str, str]], container: Container, *, of_track: bool = False) -> dict[str, str]:
    """Return the tags to carry into ``container``: without those about the old file, and spelt as muxers expect."""
    kept = {key: value for key, value in tags if not _ABOUT_THE_FILE.fullmatch(key)}
    if of_track:
        kept = _track_tags(kept, container)
    # Matroska's keys are in capitals; muxers look for the common keys in lower case.
    common = (*COMMON_TAGS, "handler_name", "language")
    return {
        key.lower() if key.lower() in common else key: value for key, value in kept.items() if not _repeats(key, kept)
    }


def needs_free_keys(tags: Iterable[tuple[str, str]], container: Container) -> bool:
    """Return whether an mp4 or mov can hold ``tags`` only under free keys, since some of them have no box."""
    boxes = container.tag_boxes
    return boxes is not None and any(key.lower() not in boxes for key, _ in tags)


def unheld_tags(tags: Iterable[tuple[str, str]], container: Container, *, free_keys: bool) -> list[str]:
    """Return the keys of the source's tags that ``container`` cannot hold, sorted."""
    worth = kept_tags(tags, container)
    if not container.tags:
        return sorted(worth)
    if container.tag_boxes is None or free_keys:
        return []
    return sorted(key for key in worth if key.lower() not in container.tag_boxes)


def _track_tags(tags: dict[str, str], container: Container) -> dict[str, str]:
    # FFmpeg's mp4 demuxer calls a track's title "name"; only containers with boxes have handlers.
    named = {("title" if key.lower() == "name" else key): value for key, value in tags.items()}
    unwanted = {"handler_name"} if container.tag_boxes is None else set()
    kept = {key: value for key, value in named.items() if key.lower() not in {"language", *unwanted}}
    spoken = next((value for key, value in named.items() if key.lower() == "language"), "und")
    language = None if spoken == "und" else container.language(spoken)
    return kept if language is None else {**kept, "language": language}


def _repeats(key: str, tags: dict[str, str]) -> bool:
    # FFmpeg's mp4 demuxer returns a tag with a language twice: as "location" and as "location-eng".
    base, dash, language = key.rpartition("-")
    return bool(dash) and len(language) == len("eng") and tags.get(base) == tags[key]


_D = Disposition
_NONE = _D(0)
_ALWAYS = (
    _D.default | _D.attached_pic | _D.timed_thumbnails | _D.still_image | _D.dependent | _D.metadata | _D.multilayer
)
"""Dispositions that never count as lost: a container keeps those that it uses, and the rest say nothing about a
track's purpose.
"""


def lost_dispositions(track: Track, container: Container) -> list[str]:
    """Return the names of a track's dispositions that ``container`` cannot state."""
    held = _ALWAYS | container.held_dispositions.get(None, _NONE) | container.held_dispositions.get(track.kind, _NONE)
    return sorted(str(flag.name) for flag in Disposition if track.disposition & int(flag) and flag not in held)
