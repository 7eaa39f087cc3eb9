"""Which tags of a source say something about its content, what its tracks are for, and which containers hold that.

A tag that describes the old file (its brand, its muxer, its statistics) would be false in the new one and is left out
without a warning.
"""

import re
from collections.abc import Iterable
from functools import reduce
from operator import or_

from av.stream import Disposition

from ..source.tracks import Track, TrackKind
from .containers import Container

_ABOUT_THE_FILE = re.compile(
    r"""major_brand|minor_version|compatible_brands|encoder|software|duration|filesize|audiochannels|audiocodecid
        |videocodecid|audiodatarate|videodatarate|audiosamplerate|audiosamplesize|framerate|width|height|stereo
        |(bps|duration|number_of_frames|number_of_bytes)(-\w+)?|_statistics_.*|timecode|vendor_id|filename|mimetype
        |hasvideo|hasaudio|hasmetadata|haskeyframes|canseektoend|datasize|videosize|audiosize|lasttimestamp
        |lastkeyframetimestamp|metadatacreator|variant_bitrate|alpha_mode|rotate""",
    re.VERBOSE | re.IGNORECASE,
)

_COMMON_KEYS = frozenset(
    {
        *("title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright", "grouping"),
        *("lyrics", "description", "synopsis", "show", "episode_id", "network", "keywords", "creation_time"),
        *("location", "track", "disc", "episode_sort", "season_number", "media_type", "hd_video", "compilation"),
    }
)
_BOXES = {
    "mp4": _COMMON_KEYS,
    "mov": frozenset(
        {"title", "artist", "album", "date", "comment", "genre", "copyright", "location", "make", "model"}
        | {"creation_time"}
    ),
}
"""What FFmpeg's muxers write as the boxes every player knows; measured by writing and reading each."""


_MOV_LANGUAGES = (
    "alb amh ara arm asm aym aze baq bel ben bul bur cat ces chi dan dut dzo eng epo est fin fra geo ger gre grn guj "
    "heb hin hun ice ind iri ita jav jpn kan kas kaz khm kin kir kor kur lao lat lav lit mac mal mar may mlg mlt mol "
    "mon nep nor nya ori orm per pol por pus que ron run rus san sin slk slv smi snd som spa sve swa tam tat tel tgk "
    "tgl tha tib tir tuk tur uig ukr urd uzb vie wel yid"
)
"""QuickTime numbers its languages; these are the names under which FFmpeg writes and reads those numbers, measured."""
_OTHER_NAMES = (
    "fre:fra deu:ger nld:dut swe:sve ell:gre isl:ice zho:chi cze:ces rum:ron slo:slk kat:geo fas:per eus:baq cym:wel "
    "mya:bur bod:tib hye:arm sqi:alb mkd:mac msa:may"
)
_MOV_SPELLINGS = dict(pair.split(":") for pair in _OTHER_NAMES.split())
"""The other of a language's two names in ISO 639-2, to the one of the above."""


def held_language(language: str, container: Container) -> str | None:
    """Return how ``container`` spells a language; None where it cannot name it."""
    if container.is_matroska:
        return language
    if container.muxer == "mov":
        spelt = _MOV_SPELLINGS.get(language, language)
        return spelt if spelt in _MOV_LANGUAGES.split() else None
    is_iso_code = len(language) == len("eng") and language.isascii() and language.isalpha() and language.islower()
    return language if is_iso_code and container.holds_tracks else None


def holds_language_tags(container: Container) -> bool:
    """Return whether ``container`` states languages by BCP 47, and not by ISO 639-2 alone."""
    return container.is_isobmff or container.is_matroska


def kept_tags(tags: Iterable[tuple[str, str]], container: Container, *, of_track: bool = False) -> dict[str, str]:
    """Return the tags worth carrying into ``container``."""
    kept = {key: value for key, value in tags if not _ABOUT_THE_FILE.fullmatch(key)}
    if of_track:
        kept = _track_tags(kept, container)
    # Matroska's own files shout their keys; muxers look for the common ones in small letters.
    common = (*_COMMON_KEYS, "handler_name", "language")
    return {
        key.lower() if key.lower() in common else key: value for key, value in kept.items() if not _repeats(key, kept)
    }


def needs_free_keys(tags: Iterable[tuple[str, str]], container: Container) -> bool:
    """Return whether an mp4 or mov can hold ``tags`` only under keys of their own, outside the well-known boxes."""
    return container.is_isobmff and any(key.lower() not in _BOXES[container.muxer] for key, _ in tags)


def unheld_tags(tags: Iterable[tuple[str, str]], container: Container, *, free_keys: bool) -> list[str]:
    """Return the keys of the source's tags that ``container`` cannot hold, sorted."""
    worth = kept_tags(tags, container)
    if not container.tags:
        return sorted(worth)
    if not container.is_isobmff or free_keys:
        return []
    return sorted(key for key in worth if key.lower() not in _BOXES[container.muxer])


def _track_tags(tags: dict[str, str], container: Container) -> dict[str, str]:
    # mp4's reader calls a track's title its name; handlers are a notion of mp4 and mov alone.
    named = {("title" if key.lower() == "name" else key): value for key, value in tags.items()}
    unwanted = set() if container.is_isobmff else {"handler_name"}
    kept = {key: value for key, value in named.items() if key.lower() not in {"language", *unwanted}}
    spoken = next((value for key, value in named.items() if key.lower() == "language"), "und")
    language = None if spoken == "und" else held_language(spoken, container)
    return kept if language is None else {**kept, "language": language}


def _repeats(key: str, tags: dict[str, str]) -> bool:
    # mp4's reader gives a tag twice when it has a language: once as "location", once as "location-eng".
    base, dash, language = key.rpartition("-")
    return bool(dash) and len(language) == len("eng") and tags.get(base) == tags[key]


def _flags(*flags: Disposition) -> int:
    return reduce(or_, (int(flag) for flag in flags))


_D = Disposition
_ALWAYS = _flags(
    _D.default, _D.attached_pic, _D.timed_thumbnails, _D.still_image, _D.dependent, _D.metadata, _D.multilayer
)
"""Kept everywhere that counts, or about how a track is stored and not what it is for."""
_SPOKEN = _flags(_D.hearing_impaired, _D.visual_impaired, _D.comment, _D.dub)
_HELD = {
    "mp4": _SPOKEN | _flags(_D.captions, _D.descriptions, _D.forced),
    "mov": 0,
    "matroska": _SPOKEN | _flags(_D.forced, _D.original),
    "webm": _flags(_D.forced),
}
_HELD_OF = {
    ("matroska", TrackKind.SUBTITLE): _flags(_D.descriptions),
    ("webm", TrackKind.SUBTITLE): _flags(_D.captions, _D.descriptions),
    ("mpegts", TrackKind.AUDIO): _flags(_D.hearing_impaired, _D.visual_impaired, _D.clean_effects),
}
"""By FFmpeg's muxers, besides the default, of all tracks and of those of one kind; each was written and read back."""


def lost_dispositions(track: Track, container: Container) -> list[str]:
    """Return the names of what a track is for, and ``container`` does not say."""
    held = _ALWAYS | _HELD.get(container.muxer, 0) | _HELD_OF.get((container.muxer, track.kind), 0)
    return sorted(str(flag.name) for flag in Disposition if track.disposition & int(flag) & ~held)
