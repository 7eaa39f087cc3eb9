"""Reads and writes BCP 47 language tags, which FFmpeg ignores: Matroska's LanguageBCP47 and mp4's ``elng``.

``make_room`` appends the language tag to the track's name, which FFmpeg's muxer writes. In the complete file,
``language_changes`` shortens the name again, and the tag takes the freed bytes, so that nothing else moves. Sources:
RFC 9559 5.1.4.1.20 and 12; ISO/IEC 14496-12 8.4.6.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..structure import (
    SEGMENT,
    Change,
    Read,
    Section,
    content,
    descendant,
    elements,
    first,
    in_segment,
    tracks_of_movie,
)
from .movie import track_number

if TYPE_CHECKING:
    from av.stream import Stream


_TAG: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_TAG_BYTES_MOST: Final = 64
_SEEK_HEAD, _TRACKS = b"\x11\x4d\x9b\x74", b"\x16\x54\xae\x6b"
_SEEK, _SEEK_ID, _SEEK_POSITION = b"\x4d\xbb", b"\x53\xab", b"\x53\xac"
_ENTRY, _KIND, _NAME = b"\xae", b"\x83", b"\x53\x6e"
_LANGUAGE, _LANGUAGE_BCP47 = b"\x22\xb5\x9c", b"\x22\xb5\x9d"
_STREAM_KINDS: Final = {1: "video", 2: "audio", 0x11: "subtitle", 0x21: "data"}
"""The kinds of Matroska tracks that FFmpeg turns into streams."""
_FULL_BOX_BYTES: Final = 4
_ELNG_BYTES: Final = 8 + _FULL_BOX_BYTES + 1
"""The size of a tag's box without the tag: head, version and flags, and the zero after the tag."""
_HANDLER_BYTES: Final = 24
"""How many bytes of ``hdlr`` precede the name."""
_MARK: Final = "\x1e"
"""A control character that no name has: it separates the name from the language tag."""
_MARKED: Final = re.compile(rb"([^\x1e]*)\x1e+([A-Za-z0-9-]+)\x1e*", re.DOTALL)
_HANDLERS: Final = {"video": "VideoHandler", "audio": "SoundHandler", "subtitle": "SubtitleHandler"}
"""The handler names that FFmpeg itself writes."""
_PAIRS: Final = (
    "aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel bg:bul bh:bih "
    "bi:bis bm:bam bn:ben bo:tib br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:cze cu:chu cv:chv cy:wel da:dan "
    "de:ger dv:div dz:dzo ee:ewe el:gre en:eng eo:epo es:spa et:est eu:baq fa:per ff:ful fi:fin fj:fij fo:fao fr:fre "
    "fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:arm hz:her "
    "ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido is:ice it:ita iu:iku ja:jpn jv:jav ka:geo kg:kon ki:kik kj:kua "
    "kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir la:lat lb:ltz lg:lug li:lim ln:lin "
    "lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mao mk:mac ml:mal mn:mon mr:mar ms:may mt:mlt my:bur na:nau nb:nob "
    "nd:nde ne:nep ng:ndo nl:dut nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:oji om:orm or:ori os:oss pa:pan pi:pli "
    "pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:rum ru:rus rw:kin sa:san sc:srd sd:snd se:sme sg:sag si:sin sk:slo "
    "sl:slv sm:smo sn:sna so:som sq:alb sr:srp ss:ssw st:sot su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha ti:tir "
    "tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol "
    "wa:wln wo:wol xh:xho yi:yid yo:yor za:zha zh:chi zu:zul"
)
"""The bibliographic codes of ISO 639-2, keyed by the codes of ISO 639-1."""
_CODES: Final = dict(pair.split(":") for pair in _PAIRS.split())
_TERMINOLOGY: Final = (
    "bo:bod cs:ces cy:cym de:deu el:ell eu:eus fa:fas fr:fra hy:hye is:isl ka:kat mi:mri mk:mkd ms:msa my:mya nl:nld "
    "ro:ron sk:slk sq:sqi zh:zho"
)
"""The terminology codes of ISO 639-2 that differ from the bibliographic codes."""
_SHORT_CODES: Final = {code: short for short, code in (pair.split(":") for pair in f"{_PAIRS} {_TERMINOLOGY}".split())}
_LETTERS: Final = 3


class LanguageForm(Enum):
    """How a container states a BCP 47 language tag."""

    MATROSKA = "an element beside the track's name"
    MP4 = "a box beside the track's handler; the handler's name ends with a zero"
    QUICKTIME = "a box beside the track's handler; the handler's name begins with its length"


class StatedLanguage(NamedTuple):
    """A track's BCP 47 language tag, which FFmpeg does not read."""

    tag: str
    is_alone: bool
    """Whether the container states no other language for the track."""


def read_language_tags(
    read: Read, kinds: Sequence[str], ids: Sequence[int], form: LanguageForm
) -> dict[int, StatedLanguage]:
    """Return the languages by stream index; {} if the header lacks these streams or cannot be parsed."""
    found = _matroska_tags(read, kinds) if form is LanguageForm.MATROSKA else _isobmff_tags(read, ids)
    return {index: stated for index, stated in found.items() if _TAG.fullmatch(stated.tag)}


def _matroska_tags(read: Read, kinds: Sequence[str]) -> dict[int, StatedLanguage]:
    tracks = _tracks(read)
    if tracks is None:
        return {}
    entries = []
    for part in elements(read, tracks.content, tracks.end):
        if part.kind == _ENTRY:
            fields = _fields(read, part)
            if (kind := _STREAM_KINDS.get(int.from_bytes(fields.get(_KIND, b"")))) is not None:
                entries.append((kind, fields))
    if [kind for kind, _ in entries] != list(kinds):
        return {}
    stated = ((index, _matroska_language(fields)) for index, (_, fields) in enumerate(entries))
    return {index: language for index, language in stated if language is not None}


def _matroska_language(fields: Mapping[bytes, bytes]) -> StatedLanguage | None:
    """Return a track's language. FFmpeg writes a BCP 47 tag where an ISO 639-2 code belongs, so either may be there."""
    if (tag := fields.get(_LANGUAGE_BCP47)) is not None:
        return StatedLanguage(_text(tag), is_alone=_LANGUAGE not in fields)
    code = _text(fields.get(_LANGUAGE, b""))
    return StatedLanguage(code, is_alone=True) if "-" in code else None


def _tracks(read: Read) -> Section | None:
    """Return the Tracks element, which is before the first cluster or at the position that the seek head states."""
    heads = {part.kind: part for part in in_segment(read) if part.kind in (_TRACKS, _SEEK_HEAD)}
    segment, head = first(elements(read, 0, None), SEGMENT), heads.get(_SEEK_HEAD)
    position = None if head is None else _sought(read, head)
    if _TRACKS in heads or segment is None or position is None:
        return heads.get(_TRACKS)
    return first(elements(read, segment.content + position, segment.end), _TRACKS)


def _sought(read: Read, head: Section) -> int | None:
    for seek in elements(read, head.content, head.end):
        fields = _fields(read, seek)
        if seek.kind == _SEEK and fields.get(_SEEK_ID) == _TRACKS:
            return int.from_bytes(fields.get(_SEEK_POSITION, b""))
    return None


def _fields(read: Read, part: Section) -> dict[bytes, bytes]:
    return {each.kind: content(read, each, _TAG_BYTES_MOST) for each in elements(read, part.content, part.end)}


def _isobmff_tags(read: Read, ids: Sequence[int]) -> dict[int, StatedLanguage]:
    found = {}
    for track in tracks_of_movie(read):
        box, number = descendant(read, track, b"mdia", b"elng"), track_number(read, track)
        if box is not None and number in ids:
            text = content(read, box, _FULL_BOX_BYTES + _TAG_BYTES_MOST)[_FULL_BOX_BYTES:]
            found[ids.index(number)] = StatedLanguage(_text(text), is_alone=False)
    return found


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("ascii", "replace")


def make_room(stream: "Stream", tag: str, form: LanguageForm) -> None:
    """Append a language to the name of an output's stream, padded to the size that ``language_changes`` needs."""
    is_matroska = form is LanguageForm.MATROSKA
    key = "title" if is_matroska else "handler_name"
    name = stream.metadata.get(key) or ("" if is_matroska else _HANDLERS.get(stream.type, ""))
    before, after = (7, 6) if not is_matroska else (2, 2) if name else (1, 0)
    stream.metadata[key] = f"{name}{_MARK * before}{tag}{_MARK * after}"


def language_changes(read: Read, *, form: LanguageForm) -> Iterator[Change]:
    """Yield the changes that move a complete file's languages out of the track names (see ``make_room``)."""
    if form is LanguageForm.MATROSKA:
        return _matroska_changes(read)
    return _isobmff_changes(read, counted=form is LanguageForm.QUICKTIME)


def _matroska_changes(read: Read) -> Iterator[Change]:
    tracks = _tracks(read)
    for entry in () if tracks is None else elements(read, tracks.content, tracks.end):
        name = first(elements(read, entry.content, entry.end), _NAME) if entry.kind == _ENTRY else None
        if name is None or (marked := _MARKED.fullmatch(read(name.content, name.end - name.content))) is None:
            continue
        text, tag = marked.groups()
        language = _LANGUAGE_BCP47 + bytes((0x80 | len(tag),)) + tag
        length_bytes = name.end - name.begin - len(language) - len(_NAME) - len(text)
        length = (len(text) | 1 << 7 * length_bytes).to_bytes(length_bytes) if text else b""
        # Put the tag after the ISO 639-2 language, because some readers take the last language.
        other = first(elements(read, name.end, entry.end), _LANGUAGE)
        between = b"" if other is None else read(name.end, other.end - name.end)
        yield name.begin, (_NAME + length + text if text else b"") + between + language


def _isobmff_changes(read: Read, *, counted: bool) -> Iterator[Change]:
    """Yield the changes of an mp4 or mov file.

    If ``counted`` is true, names begin with their length; otherwise they end with a zero byte.
    """
    for track in tracks_of_movie(read):
        handler = descendant(read, track, b"mdia", b"hdlr")
        stated = b"" if handler is None else read(handler.content, handler.end - handler.content)
        head, name = stated[:_HANDLER_BYTES], stated[_HANDLER_BYTES:]
        marked = _MARKED.fullmatch(name[1:] if counted else name.removesuffix(b"\0"))
        if handler is None or marked is None:
            continue
        text, tag = marked.groups()
        head += bytes((len(text),)) + text if counted else text + b"\0"
        language = (_ELNG_BYTES + len(tag)).to_bytes(4) + b"elng" + bytes(_FULL_BOX_BYTES) + tag + b"\0"
        yield handler.begin, language + (8 + len(head)).to_bytes(4) + b"hdlr" + head


def iso_639_2(tag: str) -> str | None:
    """Return the ISO 639-2 code of the language in a BCP 47 tag (the first part); None if there is no such code."""
    language = tag.partition("-")[0].lower()
    return language if len(language) == _LETTERS else _CODES.get(language)


def bcp_47(code: str) -> str:
    """Return the BCP 47 tag for a code of ISO 639-2. A tag has the shortest code of its language (RFC 5646, 2.2.1)."""
    return _SHORT_CODES.get(code, code)
