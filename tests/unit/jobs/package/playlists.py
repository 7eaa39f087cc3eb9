"""Reads HLS playlists strictly by the specification, without any code that writes them."""

import re
from dataclasses import dataclass
from fractions import Fraction
from urllib.parse import unquote

_ATTRIBUTE = re.compile(r'([A-Z0-9-]+)=("[^"\r\n]*"|[^",\s]+)(?:,|$)')
_TAGS_OF_MASTER = {"EXT-X-VERSION", "EXT-X-INDEPENDENT-SEGMENTS", "EXT-X-MEDIA", "EXT-X-STREAM-INF"}
_TAGS_OF_MASTER |= {"EXT-X-I-FRAME-STREAM-INF"}


@dataclass(frozen=True)
class ReadSegment:
    """A segment as its playlist states it."""

    file: str
    duration_s: Fraction
    size_bytes: int | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True)
class ReadPlaylist:
    """A media playlist."""

    tags: dict[str, str]
    map: dict[str, str] | None
    segments: tuple[ReadSegment, ...]

    @property
    def duration_s(self) -> Fraction:
        return sum((each.duration_s for each in self.segments), Fraction(0))


@dataclass(frozen=True)
class ReadMaster:
    """A master playlist."""

    media: tuple[dict[str, str], ...]
    variants: tuple[tuple[dict[str, str], str], ...]
    keyframes: tuple[dict[str, str], ...]


def _lines(text: str) -> list[str]:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufeff\u2028\u2029]", text)
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    assert lines[0] == "#EXTM3U"
    return lines[1:]


def attributes(text: str) -> dict[str, str]:
    """Read an attribute list; its quoted strings keep their quotes."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _ATTRIBUTE.match(text, position)
        assert match, text[position:]
        assert match[1] not in found
        found[match[1]] = match[2]
        position = match.end()
    assert not text.endswith(",")
    return found


def unquoted(value: str) -> str:
    """Return the content of a quoted string."""
    assert value[0] == value[-1] == '"'
    return value[1:-1]


def file_of(uri: str) -> str:
    """Return the file that a relative URL names."""
    assert re.fullmatch(r"[A-Za-z0-9%._~/-]+", uri)
    return unquote(uri)


def read_master(text: str) -> ReadMaster:
    """Read a master playlist."""
    media, variants, keyframes = [], [], []
    lines = iter(_lines(text))
    for line in lines:
        name, _, value = line.removeprefix("#").partition(":")
        assert name in _TAGS_OF_MASTER
        if name == "EXT-X-MEDIA":
            media.append(attributes(value))
        elif name == "EXT-X-STREAM-INF":
            variants.append((attributes(value), file_of(next(lines))))
        elif name == "EXT-X-I-FRAME-STREAM-INF":
            keyframes.append(attributes(value))
    return ReadMaster(tuple(media), tuple(variants), tuple(keyframes))


def read_playlist(text: str) -> ReadPlaylist:
    """Read a media playlist."""
    tags: dict[str, str] = {}
    map_: dict[str, str] | None = None
    segments: list[ReadSegment] = []
    duration_s, place = None, (None, None)
    for line in _lines(text):
        name, _, value = line.removeprefix("#").partition(":")
        if name == "EXTINF":
            assert re.fullmatch(r"\d+\.\d+,", value)
            duration_s = Fraction(value[:-1])
        elif name == "EXT-X-BYTERANGE":
            size, offset = value.split("@")
            place = (int(size), int(offset))
        elif name == "EXT-X-MAP":
            assert not segments
            map_ = attributes(value)
        elif line.startswith("#"):
            assert name not in tags
            tags[name] = value
        else:
            assert duration_s is not None
            segments.append(ReadSegment(file_of(line), duration_s, *place))
            duration_s, place = None, (None, None)
    return ReadPlaylist(tags, map_, tuple(segments))
