"""Text subtitles from one codec's packets to another's: words, line breaks and simple emphasis.

The common form of a cue is SubRip's: lines of text with ``<i>``, ``<b>`` and ``<u>``. Fonts, colours, positions and
karaoke are lost; the job reports it. Sources: 3GPP TS 26.245 (mov_text), the WebVTT recommendation, Matroska's codec
mappings for S_TEXT/UTF8, S_TEXT/ASS and S_TEXT/WEBVTT.
"""

import html
import re
import struct
from collections.abc import Callable

_EMPHASIS = re.compile(r"</?[ibu]>", re.IGNORECASE)
_MARKUP = re.compile(r"</?[^<>]*>")
_ASS_FIELDS_BEFORE_TEXT = 8
_ASS_OVERRIDE = re.compile(r"\{([^{}]*)\}")
_ASS_SWITCH = re.compile(r"\\([ibu])(\d+)(?![\w])")
_ASS_DRAWING = re.compile(r"\\p[1-9]")


TX3G_DESCRIPTION = (
    struct.pack(">IbbBBBB", 0, 1, -1, 0, 0, 0, 0)  # flags; centred at the bottom; transparent background
    + struct.pack(">hhhh", 0, 0, 0, 0)  # the text box: all of the picture
    + struct.pack(">HHHBB4B", 0, 0, 1, 0, 18, 255, 255, 255, 255)  # style: font 1, plain, 18, white
    + struct.pack(">I4sHHB10s", 23, b"ftab", 1, 1, 10, b"Sans-Serif")
)
"""The sample description every mov_text track needs as its extradata (3GPP TS 26.245, 5.16), less its box header."""


def read_cue(codec: str, payload: bytes) -> str:
    """Return a packet's text in the common form, "" where it shows nothing; ``KeyError`` for an unknown ``codec``."""
    text = _READERS[codec](payload)
    lines = (line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return "\n".join(line for line in lines if line).strip("\0")


def write_cue(codec: str, text: str) -> bytes:
    """Return the payload that shows ``text`` of the common form; ``KeyError`` where ``codec`` cannot hold text."""
    return _WRITERS[codec](text)


def _read_mov_text(payload: bytes) -> str:
    text = payload[2 : 2 + int.from_bytes(payload[:2], "big")]
    return text.decode("utf-16" if text[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8", "replace")


def _read_plain(payload: bytes) -> str:
    return payload.decode("utf-8", "replace")


def _only_emphasis(text: str) -> str:
    return _MARKUP.sub(lambda tag: tag[0].lower() if _EMPHASIS.fullmatch(tag[0]) else "", text)


def _read_ass(payload: bytes) -> str:
    text = _read_plain(payload).split(",", _ASS_FIELDS_BEFORE_TEXT)[-1]
    if any(_ASS_DRAWING.search(override) for override in _ASS_OVERRIDE.findall(text)):
        return ""  # a drawing: its text is coordinates

    def emphasis(override: re.Match[str]) -> str:
        return "".join(f"<{'' if int(on) else '/'}{letter}>" for letter, on in _ASS_SWITCH.findall(override[1]))

    return _ASS_OVERRIDE.sub(emphasis, text).replace("\\N", "\n").replace("\\n", "\n").replace("\\h", " ")


def _write_mov_text(text: str) -> bytes:
    plain = _EMPHASIS.sub("", text).encode()[:0xFFFF]
    return struct.pack(">H", len(plain)) + plain


def _write_webvtt(text: str) -> bytes:
    parts = re.split(f"({_EMPHASIS.pattern})", text)
    return "".join(part if _EMPHASIS.fullmatch(part) else html.escape(part, quote=False) for part in parts).encode()


_READERS: dict[str, Callable[[bytes], str]] = {
    "mov_text": _read_mov_text,
    "subrip": lambda payload: _only_emphasis(_read_plain(payload)),
    "webvtt": lambda payload: html.unescape(_only_emphasis(_read_plain(payload))),
    "text": _read_plain,
    "ass": _read_ass,
}
_WRITERS: dict[str, Callable[[str], bytes]] = {
    "mov_text": _write_mov_text,
    "subrip": str.encode,
    "webvtt": _write_webvtt,
}
