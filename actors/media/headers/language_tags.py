"""Languages by BCP 47 ("pt-BR"), which FFmpeg neither reads nor writes: Matroska's LanguageBCP47, ``elng`` of mp4.

To write one, it goes with a string that FFmpeg does write beside it: the track's name in Matroska, its handler's in mp4
and mov. When the file is complete, that string is shortened and the language put beside it, so that nothing else in the
file moves.

Sources: RFC 9559 sections 5.1.4.1.20 and 12; ISO/IEC 14496-12 section 8.4.6; RFC 8794 section 11.3.1 (CRC-32).
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from .watch import Part, Read, boxes, elements, first

if TYPE_CHECKING:
    from av.stream import Stream


_TAG: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_TAG_BYTES_MOST: Final = 64
_SEGMENT, _SEEK_HEAD, _TRACKS, _CLUSTER = (
    b"\x18\x53\x80\x67",
    b"\x11\x4d\x9b\x74",
    b"\x16\x54\xae\x6b",
    b"\x1f\x43\xb6\x75",
)
_SEEK, _SEEK_ID, _SEEK_POSITION = b"\x4d\xbb", b"\x53\xab", b"\x53\xac"
_ENTRY, _KIND, _NAME, _CRC = b"\xae", b"\x83", b"\x53\x6e", b"\xbf"
_LANGUAGE, _LANGUAGE_BCP47 = b"\x22\xb5\x9c", b"\x22\xb5\x9d"
_STREAM_KINDS: Final = {1: "video", 2: "audio", 0x11: "subtitle", 0x21: "data"}
"""The kinds of Matroska's tracks of which FFmpeg makes streams."""
_FULL_BOX_BYTES: Final = 4
_TRACK_HEAD_BYTES: Final = 24
"""Where a track's number ends in ``tkhd``."""
_ELNG_BYTES: Final = 8 + _FULL_BOX_BYTES + 1
"""A box without the tag: its head, its version and flags, and the zero after the tag."""
_HANDLER_BYTES: Final = 24
"""What lies before the name in ``hdlr``."""
_MARK: Final = "\x1e"
"""A control character that no name has: language tags follow it."""
_MARKED: Final = re.compile(rb"([^\x1e]*)\x1e+([A-Za-z0-9-]+)\x1e*", re.DOTALL)
_HANDLERS: Final = {"video": "VideoHandler", "audio": "SoundHandler", "subtitle": "SubtitleHandler"}
"""FFmpeg's own names."""


class StatedLanguage(NamedTuple):
    """What a container says of a track's language besides what FFmpeg reads."""

    tag: str
    is_alone: bool
    """Whether the container states no other language of the track."""


def read_language_tags(
    read: Read, kinds: Sequence[str], ids: Sequence[int], *, is_matroska: bool
) -> dict[int, StatedLanguage]:
    """Return the languages by stream index; ``kinds`` and ``ids`` are of the file's streams, as FFmpeg numbers them.

    Nothing where the header cannot be followed, or does not have these streams.
    """
    found = _matroska_tags(read, kinds) if is_matroska else _isobmff_tags(read, ids)
    return {index: stated for index, stated in found.items() if _TAG.fullmatch(stated.tag)}


def _matroska_tags(read: Read, kinds: Sequence[str]) -> dict[int, StatedLanguage]:
    tracks = _tracks(read)
    if tracks is None:
        return {}
    entries = []
    for part in elements(read, tracks.content, tracks.end):
        if part.kind == _ENTRY:
            fields = {field.kind: _content(read, field) for field in elements(read, part.content, part.end)}
            if (kind := _STREAM_KINDS.get(int.from_bytes(fields.get(_KIND, b"")))) is not None:
                entries.append((kind, fields))
    if [kind for kind, _ in entries] != list(kinds):
        return {}
    return {
        index: StatedLanguage(_text(fields[_LANGUAGE_BCP47]), _LANGUAGE not in fields)
        for index, (_, fields) in enumerate(entries)
        if _LANGUAGE_BCP47 in fields
    }


def _tracks(read: Read) -> Part | None:
    """Return the Tracks element: before the first cluster, or where the seek head says."""
    segment = first(elements(read, 0, None), _SEGMENT)
    if segment is None:
        return None
    position = None
    for part in elements(read, segment.content, segment.end):
        if part.kind == _TRACKS:
            return part
        if part.kind == _SEEK_HEAD:
            position = _sought(read, part)
        if part.kind == _CLUSTER:
            break
    return None if position is None else first(elements(read, segment.content + position, segment.end), _TRACKS)


def _sought(read: Read, head: Part) -> int | None:
    for seek in elements(read, head.content, head.end):
        fields = {field.kind: _content(read, field) for field in elements(read, seek.content, seek.end)}
        if seek.kind == _SEEK and fields.get(_SEEK_ID) == _TRACKS:
            return int.from_bytes(fields.get(_SEEK_POSITION, b""))
    return None


def _isobmff_tags(read: Read, ids: Sequence[int]) -> dict[int, StatedLanguage]:
    found = {}
    for trak in _traks(read):
        header, media = (first(boxes(read, trak.content, trak.end), kind) for kind in (b"tkhd", b"mdia"))
        box = None if media is None else first(boxes(read, media.content, media.end), b"elng")
        if header is None or box is None:
            continue
        facts, text = read(header.content, _TRACK_HEAD_BYTES), _content(read, box)[_FULL_BOX_BYTES:]
        at = 20 if facts[:1] == b"\x01" else 12
        if (number := int.from_bytes(facts[at : at + 4])) in ids:
            found[ids.index(number)] = StatedLanguage(_text(text), is_alone=False)
    return found


def _traks(read: Read) -> Iterator[Part]:
    movie = first(boxes(read, 0, None), b"moov")
    if movie is not None:
        yield from (part for part in boxes(read, movie.content, movie.end) if part.kind == b"trak")


def _content(read: Read, part: Part) -> bytes:
    return read(part.content, min(part.end - part.content, _TAG_BYTES_MOST))


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("ascii", "replace")


def make_room(stream: "Stream", tag: str, *, is_matroska: bool) -> None:
    """Put a language behind the name of an output's stream, from where ``state_language_tags`` takes it.

    The name gets as many bytes longer as the language will take beside it.
    """
    key = "title" if is_matroska else "handler_name"
    name = stream.metadata.get(key) or ("" if is_matroska else _HANDLERS.get(stream.type, ""))
    before, after = (7, 6) if not is_matroska else (2, 2) if name else (1, 0)
    stream.metadata[key] = f"{name}{_MARK * before}{tag}{_MARK * after}"


def state_language_tags(file: BinaryIO, *, muxer: str) -> None:
    """State the languages of a complete file's tracks that ``make_room`` has put behind their names."""

    def read(position: int, size: int) -> bytes:
        file.seek(position)
        return file.read(size)

    is_matroska = muxer in ("matroska", "webm")
    changed = list(_matroska_changes(read) if is_matroska else _isobmff_changes(read, counted=muxer == "mov"))
    for position, data in changed:
        file.seek(position)
        file.write(data)
    tracks = _tracks(read) if is_matroska and changed else None
    check = None if tracks is None else first(elements(read, tracks.content, tracks.end), _CRC)
    if tracks is not None and check is not None:
        sum_ = zlib.crc32(read(check.end, tracks.end - check.end))
        file.seek(check.content)
        file.write(sum_.to_bytes(4, "little"))


def _matroska_changes(read: Read) -> Iterator[tuple[int, bytes]]:
    tracks = _tracks(read)
    for entry in () if tracks is None else elements(read, tracks.content, tracks.end):
        name = first(elements(read, entry.content, entry.end), _NAME) if entry.kind == _ENTRY else None
        if name is None or (marked := _MARKED.fullmatch(read(name.content, name.end - name.content))) is None:
            continue
        text, tag = marked.groups()
        language = _LANGUAGE_BCP47 + bytes((0x80 | len(tag),)) + tag
        length_bytes = name.end - name.begin - len(language) - len(_NAME) - len(text)
        length = (len(text) | 1 << 7 * length_bytes).to_bytes(length_bytes) if text else b""
        # Behind the other language: some readers take what comes last.
        other = first(elements(read, name.end, entry.end), _LANGUAGE)
        between = b"" if other is None else read(name.end, other.end - name.end)
        yield name.begin, (_NAME + length + text if text else b"") + between + language


def _isobmff_changes(read: Read, *, counted: bool) -> Iterator[tuple[int, bytes]]:
    """Yield what to write where; ``counted`` names begin with their length, others end with a zero."""
    for trak in _traks(read):
        media = first(boxes(read, trak.content, trak.end), b"mdia")
        handler = None if media is None else first(boxes(read, media.content, media.end), b"hdlr")
        content = b"" if handler is None else read(handler.content, handler.end - handler.content)
        head, name = content[:_HANDLER_BYTES], content[_HANDLER_BYTES:]
        marked = _MARKED.fullmatch(name[1:] if counted else name.removesuffix(b"\0"))
        if handler is None or marked is None:
            continue
        text, tag = marked.groups()
        head += bytes((len(text),)) + text if counted else text + b"\0"
        language = (_ELNG_BYTES + len(tag)).to_bytes(4) + b"elng" + bytes(_FULL_BOX_BYTES) + tag + b"\0"
        yield handler.begin, language + (8 + len(head)).to_bytes(4) + b"hdlr" + head
