"""Derives codec strings (RFC 6381) from sample entries.

Sources: ISO/IEC 14496-15, annex E, for H.264 and HEVC; the bindings of AV1 and VP9 to ISOBMFF; ISO/IEC 14496-1 and
14496-3 for AAC; "Dolby Vision streams within the HTTP Live Streaming format" for supplemental strings.
"""

import io
import struct
from collections.abc import Callable, Mapping
from typing import Final

from ....actors.bitstream.access_points import BitReader
from ....actors.media.structure import boxes, reader_of
from ....errors import Unsupported

_VIDEO_FIELDS_BYTES: Final = 78
_AUDIO_FIELDS_BYTES: Final = 28
_HEAD_BYTES: Final = 8
_VERSION_BYTES: Final = 4
_AAC: Final = 0x40
_ES, _DECODER_CONFIG, _DECODER_SPECIFIC = 3, 4, 5
_ESCAPED_TYPE: Final = 31
_COMPATIBLE: Final = {1: "db1p", 2: "db2g", 4: "db4h"}
"""The brands of Dolby Vision with a base layer that other players show, by ``dv_bl_signal_compatibility_id``."""
_UNSTATED: Final = (1, 1, 1, 0)
"""BT.709 primaries, transfer and matrix, and limited range: AV1's codec string implies these if it names no colours."""


def codec_string(sample_entry: bytes) -> str:
    """Return the codec string of a sample entry (the whole box), such as ``avc1.640028`` or ``mp4a.40.2``.

    Raises Unsupported: the codec is unknown, or its configuration cannot be read.
    """
    kind = sample_entry[4:8].decode("latin-1")
    describe = _STRINGS.get(kind)
    if describe is None:
        message = f"players know no codec string for {kind!r} in mp4"
        raise Unsupported(
            message, "Use h264, hevc, av1 or vp9 for pictures, and aac, opus, ac3, eac3 or flac for sound."
        )
    try:
        return kind + describe(entry_boxes(sample_entry))
    except (KeyError, IndexError, EOFError, struct.error) as error:
        message = f"the sample entry {kind!r} does not describe its codec"
        raise Unsupported(message, "Please report this error together with the file.") from error


def supplemental_codec(sample_entry: bytes) -> str:
    """Return Dolby Vision's codec string for a track that other players can show too; "" if there is none."""
    found = entry_boxes(sample_entry)
    stated = found.get(b"dvcC") or found.get(b"dvvC")
    if stated is None:
        return ""
    profile, level = stated[2] >> 1, (stated[2] & 1) << 5 | stated[3] >> 3
    brand = _COMPATIBLE.get(stated[4] >> 4)
    kind = {b"hvc1": "dvh1", b"hev1": "dvhe", b"av01": "dav1"}.get(sample_entry[4:8])
    return f"{kind}.{profile:02}.{level:02}/{brand}" if brand and kind else ""


def entry_boxes(sample_entry: bytes) -> Mapping[bytes, bytes]:
    """Return the contents of the boxes in a sample entry, by kind."""
    fields_bytes = _AUDIO_FIELDS_BYTES if is_sound(sample_entry) else _VIDEO_FIELDS_BYTES
    return inner_boxes(sample_entry[_HEAD_BYTES + fields_bytes :])


def inner_boxes(data: bytes) -> Mapping[bytes, bytes]:
    """Return the contents of the boxes in ``data``, by kind."""
    return {each.kind: data[each.content : each.end] for each in boxes(reader_of(io.BytesIO(data)), 0, len(data))}


def is_sound(sample_entry: bytes) -> bool:
    """Return whether a sample entry describes sound, clear or encrypted."""
    return sample_entry[4:8] in _SOUND


def _avc(found: Mapping[bytes, bytes]) -> str:
    return f".{found[b'avcC'][1:4].hex().upper():0>6}"


def _hevc(found: Mapping[bytes, bytes]) -> str:
    profile, compatibility, constraints, level = struct.unpack_from(">BI6sB", found[b"hvcC"], 1)
    space = ("", "A", "B", "C")[profile >> 6]
    tier = "H" if profile & 0x20 else "L"
    reversed_bits = int(f"{compatibility:032b}"[::-1], 2)
    kept = "".join(f".{each:X}" for each in constraints.rstrip(b"\0"))
    return f".{space}{profile & 0x1F}.{reversed_bits:X}.{tier}{level}{kept}"


def _av1(found: Mapping[bytes, bytes]) -> str:
    reader = BitReader(found[b"av1C"][1:3], is_escaped=False)
    profile, level, is_high = reader.bits(3), reader.bits(5), reader.flag()
    is_deep, is_twelve, is_grey = reader.flag(), reader.flag(), reader.flag()
    sampling = f"{reader.bits(1)}{reader.bits(1)}{reader.bits(2)}"
    depth = 12 if is_twelve else 10 if is_deep else 8
    stated = f".{profile}.{level:02}{'H' if is_high else 'M'}.{depth:02}"
    colour = _colour(found)
    if colour is None:
        return stated
    # The last digit of the sampling is the position of the chroma samples, which only 4:2:0 states.
    primaries, transfer, matrix, is_full = colour
    place = sampling if sampling[:2] == "11" else f"{sampling[:2]}0"
    return f"{stated}.{int(is_grey)}.{place}.{primaries:02}.{transfer:02}.{matrix:02}.{is_full}"


def _colour(found: Mapping[bytes, bytes]) -> tuple[int, int, int, int] | None:
    """Return the colour description of ``colr``; None if it is absent, or if a codec string implies it."""
    stated = found.get(b"colr", b"")
    if stated[:4] != b"nclx":
        return None
    primaries, transfer, matrix, full = struct.unpack_from(">3HB", stated, 4)
    colour = primaries, transfer, matrix, full >> 7
    return None if colour == _UNSTATED else colour


def _vp9(found: Mapping[bytes, bytes]) -> str:
    profile, level, packed, primaries, transfer, matrix = found[b"vpcC"][_VERSION_BYTES:][:6]
    depth, sampling, is_full = packed >> 4, packed >> 1 & 7, packed & 1
    colour = f"{primaries:02}.{transfer:02}.{matrix:02}.{is_full:02}"
    return f".{profile:02}.{level:02}.{depth:02}.{sampling:02}.{colour}"


def _mpeg4_sound(found: Mapping[bytes, bytes]) -> str:
    configuration = _descriptor(_descriptor(found[b"esds"][_VERSION_BYTES:], _ES)[3:], _DECODER_CONFIG)
    object_type = configuration[0]
    if object_type != _AAC:
        return f".{object_type:02X}"
    reader = BitReader(_descriptor(configuration[13:], _DECODER_SPECIFIC), is_escaped=False)
    kind = reader.bits(5)
    return f".40.{32 + reader.bits(6) if kind == _ESCAPED_TYPE else kind}"


def _descriptor(data: bytes, tag: int) -> bytes:
    """Return the content of the first descriptor in ``data`` (14496-1, 8.3.3). Raises KeyError: it has another tag."""
    if data[0] != tag:
        raise KeyError(tag)
    size, place = 0, 1
    while True:
        size, more, place = size << 7 | data[place] & 0x7F, data[place] >> 7, place + 1
        if not more:
            return data[place : place + size]


def _no_more(_: Mapping[bytes, bytes]) -> str:
    return ""


_SOUND: Final = frozenset({b"mp4a", b"Opus", b"ac-3", b"ec-3", b"fLaC", b"alac", b".mp3", b"enca"})
SOUND_CODECS: Final = frozenset({"aac", "ac3", "alac", "eac3", "flac", "mp3", "opus"})
"""FFmpeg's names of the sound codecs whose sample entries have a codec string."""
_STRINGS: Final[Mapping[str, Callable[[Mapping[bytes, bytes]], str]]] = {
    "avc1": _avc,
    "avc3": _avc,
    "hvc1": _hevc,
    "hev1": _hevc,
    "av01": _av1,
    "vp09": _vp9,
    "mp4a": _mpeg4_sound,
    "Opus": _no_more,
    "ac-3": _no_more,
    "ec-3": _no_more,
    "fLaC": _no_more,
    "alac": _no_more,
}
