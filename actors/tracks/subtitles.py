"""Converts text subtitles between codecs. Words, line breaks and simple emphasis are kept; everything else is lost.

Only a format's own tags count as tags; other text in brackets stays ("if a < 5", "<MUSIC>"). Sources: 3GPP TS 26.245,
the WebVTT recommendation, Matroska's mappings for S_TEXT/UTF8, S_TEXT/ASS and S_TEXT/WEBVTT; for SubRip the tags that
FFmpeg's, VLC's and MPC's readers share.

The common form is a text's lines, with a Unicode noncharacter wherever italic, bold or underlined text begins or ends.
"""

import html
import re
import struct
from collections.abc import Callable
from typing import Final

_BEGINS: Final = {"i": "\ufdd0", "b": "\ufdd2", "u": "\ufdd4"}
_ENDS: Final = {"i": "\ufdd1", "b": "\ufdd3", "u": "\ufdd5"}
_MARKS: Final = re.compile("[\ufdd0-\ufdd5]")
_WRITTEN_MARKS: Final = str.maketrans(
    {mark: f"<{letter}>" for letter, mark in _BEGINS.items()} | {mark: f"</{letter}>" for letter, mark in _ENDS.items()}
)
_JOINER: Final = "\u2060"
"""WORD JOINER, an invisible character. After a bracket it keeps text from being a tag: SubRip has no escape."""

_VALUE: Final = r"""(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"']+)"""
_IN_BRACKETS: Final = r"[^{}<>()]*"
_ARGUMENT: Final = rf"(?:\({_IN_BRACKETS}(?:\({_IN_BRACKETS}\){_IN_BRACKETS})*\)|&H[0-9a-fA-F]+&?|-?[\d.]*)"
_ASS_TAG: Final = (
    r"\\(?:fn[^\\{}<>]*|(?:[ibusakqpcr]|an|kf|ko|[xy]?bord|[xy]?shad|be|blur|fs|fsp|fsc[xy]|fr[xyz]?|fa[xy]|fe|[1-4][ac]"
    rf"|alpha|pos|move|org|fade?|t|i?clip|pbo){_ARGUMENT}\s*)"
)
_SUBRIP_TAG: Final = re.compile(
    rf"<(?P<end>/?)(?P<name>[ibus]|font)(?:\s+[\w-]+\s*=\s*{_VALUE})*\s*>|(?P<line><br\s*/?>)"
    rf"|\{{(?P<override>(?:{_ASS_TAG})+)\}}",
    re.IGNORECASE,
)
_WEBVTT_TAG: Final = re.compile(
    r"<(?P<end>/?)(?P<name>c|i|b|u|ruby|rt)(?:\.[^\s<>&.]+)*>|<(?:v|lang)(?:\.[^\s<>&.]+)*(?:\s[^<>]*)?>|</(?:v|lang)>"
    r"|<(?:\d{2,}:)?\d\d:\d\d\.\d{3}>"
)
_ASS_FIELDS_BEFORE_TEXT: Final = 8
_ASS_BLOCK: Final = re.compile(r"(?<!\\)\{([^}]*)\}")
_ASS_SWITCH: Final = re.compile(r"\\([ibu])(\d+)(?!\w)")
_ASS_DRAWING: Final = re.compile(r"\\p(\d+)")
_ASS_ESCAPE: Final = re.compile(r"\\([Nnh{}])")
_ASS_ESCAPED: Final = {"N": "\n", "n": "\n", "h": " "}
_MOST_BYTES: Final = 0xFFFF


TX3G_DESCRIPTION = (
    struct.pack(">IbbBBBB", 0, 1, -1, 0, 0, 0, 0)  # flags, centred at the bottom, transparent background
    + struct.pack(">hhhh", 0, 0, 0, 0)  # the text box: the whole picture
    + struct.pack(">HHHBB4B", 0, 0, 1, 0, 18, 255, 255, 255, 255)  # style: font 1, plain, 18, white
    + struct.pack(">I4sHHB10s", 23, b"ftab", 1, 1, 10, b"Sans-Serif")
)
"""The sample description that every mov_text track needs as extradata (3GPP TS 26.245, 5.16), without box header."""


def read_cue(codec: str, payload: bytes) -> str:
    """Return a packet's text in the common form, "" if nothing is shown; ``KeyError`` for an unknown ``codec``."""
    text = _READERS[codec](payload).replace("\r\n", "\n").replace("\r", "\n")
    return _without_blank_lines(text) if _MARKS.sub("", text).strip("\0 \n") else ""


def plain_cue(text: str) -> str:
    """Return the words and lines of the common form, without emphasis."""
    return _without_blank_lines(_MARKS.sub("", text))


def write_cue(codec: str, text: str) -> bytes:
    """Return the payload of a packet that shows ``text``, which is in the common form (see the module).

    ``KeyError`` if ``codec`` cannot hold text.
    """
    return _WRITERS[codec](text)


def webvtt_cue(begin_ms: int, end_ms: int, payload: str) -> str:
    """Return a cue of a WebVTT file, without the blank line that separates cues."""
    return f"{_clock(begin_ms)} --> {_clock(end_ms)}\n{payload}\n"


def _clock(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def _without_blank_lines(text: str) -> str:
    return "\n".join(line for each in text.split("\n") if (line := each.rstrip())).strip("\0")


def _decoded(payload: bytes, encoding: str = "utf-8") -> str:
    return _MARKS.sub("", payload.decode(encoding, "replace"))


def _read_mov_text(payload: bytes) -> str:
    text = payload[2 : 2 + int.from_bytes(payload[:2], "big")]
    return _decoded(text, "utf-16" if text[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8")


def _read_subrip(payload: bytes) -> str:
    marked = _SUBRIP_TAG.sub(_subrip_mark, _decoded(payload))
    return marked.replace(f"<{_JOINER}", "<").replace(f"{{{_JOINER}", "{")


def _subrip_mark(tag: re.Match[str]) -> str:
    if tag["line"]:
        return "\n"
    return _switches(tag["override"]) if tag["override"] else _mark(tag)


def _mark(tag: re.Match[str]) -> str:
    """Return the mark for a tag in angle brackets; "" if the tag is not emphasis."""
    return (_ENDS if tag["end"] else _BEGINS).get((tag["name"] or "").lower(), "")


def _switches(override: str) -> str:
    """Return the marks for the emphasis that an override of ASS switches on and off."""
    return "".join((_BEGINS if int(on) else _ENDS)[letter] for letter, on in _ASS_SWITCH.findall(override))


def _read_webvtt(payload: bytes) -> str:
    return html.unescape(_WEBVTT_TAG.sub(_mark, _decoded(payload)))


def _read_ass(payload: bytes) -> str:
    text = _decoded(payload).split(",", _ASS_FIELDS_BEFORE_TEXT)[-1]
    found, is_drawing = [], False
    closed = text.rfind("}") + 1  # later brackets open no tag; searching for a closing bracket each time would be slow
    for place, part in enumerate([*_ASS_BLOCK.split(text[:closed]), "", text[closed:]]):
        if place % 2:
            levels = _ASS_DRAWING.findall(part)
            is_drawing = bool(int(levels[-1])) if levels else is_drawing
            found.append(_switches(part))
        elif not is_drawing:  # a drawing has coordinates instead of text
            found.append(_ASS_ESCAPE.sub(lambda escape: _ASS_ESCAPED.get(escape[1], escape[1]), part))
    return "".join(found)


def _write_mov_text(text: str) -> bytes:
    plain = plain_cue(text).encode()[:_MOST_BYTES].decode("utf-8", "ignore").encode()
    return struct.pack(">H", len(plain)) + plain


def _write_subrip(text: str) -> bytes:
    words = _SUBRIP_TAG.sub(lambda tag: f"{tag[0][0]}{_JOINER}{tag[0][1:]}", text)
    return words.translate(_WRITTEN_MARKS).encode()


def _write_webvtt(text: str) -> bytes:
    return html.escape(text, quote=False).translate(_WRITTEN_MARKS).encode()


_READERS: dict[str, Callable[[bytes], str]] = {
    "mov_text": _read_mov_text,
    "subrip": _read_subrip,
    "webvtt": _read_webvtt,
    "text": _decoded,
    "ass": _read_ass,
}
_WRITERS: dict[str, Callable[[str], bytes]] = {
    "mov_text": _write_mov_text,
    "subrip": _write_subrip,
    "webvtt": _write_webvtt,
}
