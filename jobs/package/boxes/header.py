"""Writes a CMAF header (ISO/IEC 23000-19, 7.3.1) from a track of a proven mp4 file.

The description of the track is copied unchanged: the sample entry with its codec configuration, colours and HDR values,
the language, and the picture's rotation. The new file gets a track ID, durations and sample
tables of its own.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....actors.media.headers import track_number
from ....actors.media.structure import Read, Section, boxes, descendant, first, tracks_of_movie
from ....errors import ProofFailed
from .fragments import TRACK_ID, box, file_type, full_box
from .protection import protected_entry

BRANDS: Final = (b"iso6", b"cmfc")
"""``iso6``: fragments state times and relative positions (14496-12, annex E); ``cmfc``: CMAF (23000-19, annex A)."""
_UNITY: Final = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_LONG_FIELDS: Final = 1
#: The rates in btrt (14496-12, 8.5.2), and in the DecoderConfigDescriptor of esds (14496-1, 7.2.6.6)
_RATES: Final = re.compile(rb"(?<=btrt).{12}|(?<=esds.{12}\x04\x80\x80\x80..\x15).{11}", re.DOTALL)
_KEPT_OF_MEDIA: Final = (b"hdlr", b"elng")
_KEPT_OF_INFORMATION: Final = (b"vmhd", b"smhd", b"dinf")
_ADVICE: Final = "Please report this error together with the file."


@dataclass(frozen=True, slots=True)
class ProvenHeader:
    """The boxes that a CMAF header copies from one track of a proven file, each with its head."""

    track_header: bytes  #: tkhd, with the track ID of a CMAF track and the duration 0
    media_header: bytes  #: mdhd, with the duration 0
    timescale: int
    described: tuple[bytes, ...]  #: hdlr and, if the file has it, elng
    information: tuple[bytes, ...]  #: vmhd or smhd, and dinf
    descriptions: bytes  #: stsd
    rolls: bytes  #: sgpd that states how much earlier a decoder of sound must start; b"" without one

    @property
    def sample_entry(self) -> bytes:
        """The only sample entry, with its head."""
        return self.descriptions[16:]

    @property
    def shown_size(self) -> tuple[int, int]:
        """The width and height at which the picture is shown, in pixels; (0, 0) for sound."""
        fields = self.track_header[-44:]
        a, b, _, c, d = struct.unpack_from(">5i", fields)
        width, height = struct.unpack_from(">2I", fields, 36)
        across, down = (abs(a) * width + abs(c) * height, abs(b) * width + abs(d) * height)
        return round(across / (1 << 32)), round(down / (1 << 32))


def proven_header(read: Read, track_id: int) -> ProvenHeader:
    """Read the boxes of a track. Raises ProofFailed: one is missing, or there is not exactly one sample description."""
    track = next((each for each in tracks_of_movie(read) if track_number(read, each) == track_id), None)
    media = descendant(read, track, b"mdia")
    information = descendant(read, media, b"minf")
    table = descendant(read, information, b"stbl")
    track_header, media_header = descendant(read, track, b"tkhd"), descendant(read, media, b"mdhd")
    descriptions = descendant(read, table, b"stsd")
    if media is None or information is None or table is None:
        raise ProofFailed(f"track {track_id} has no header", _ADVICE)
    if track_header is None or media_header is None or descriptions is None:
        raise ProofFailed(f"track {track_id} is not described", _ADVICE)
    entries = int.from_bytes(read(descriptions.content + 4, 4))
    if entries != 1:
        message = f"track {track_id} has {entries} sample descriptions, and a CMAF track has one"
        raise ProofFailed(message, "Encode the track again, so that it has one.")
    media_fields, timescale = _without_duration(_all(read, media_header), number=False)
    return ProvenHeader(
        track_header=_without_duration(_all(read, track_header), number=True)[0],
        media_header=media_fields,
        timescale=timescale,
        described=tuple(_kept(read, media, _KEPT_OF_MEDIA)),
        information=tuple(_kept(read, information, _KEPT_OF_INFORMATION)),
        descriptions=_all(read, descriptions),
        rolls=b"".join(each for each in _kept(read, table, (b"sgpd",)) if each[12:16] == b"roll"),
    )


def protected(proven: ProvenHeader, information: bytes) -> ProvenHeader:
    """Return the header of the track once it is encrypted; ``information`` is the content of ``sinf``."""
    entries = full_box(b"stsd", 0, 0, struct.pack(">I", 1), protected_entry(proven.sample_entry, information))
    return replace(proven, descriptions=entries)


def without_rates(proven: ProvenHeader) -> ProvenHeader:
    """Return a header whose sample entry states no bitrates: those of a part are not the track's."""
    return replace(proven, descriptions=_RATES.sub(lambda found: bytes(len(found[0])), proven.descriptions))


def cmaf_header(proven: ProvenHeader, *, end: int | None, edit: int, pssh: Sequence[bytes] = ()) -> bytes:
    """Return ``ftyp`` and ``moov``.

    ``end`` is the time at which the track ends, in its ticks; None if that is unknown. Unless ``edit`` is 0, an edit
    list presents tick ``edit`` of the media at time 0. The edit has the duration 0, so it also applies to fragments
    (14496-12, 8.6.6.1). ``pssh`` are boxes for key systems.
    """
    edits = box(b"edts", full_box(b"elst", 0, 0, struct.pack(">IIiHH", 1, 0, edit, 1, 0))) if edit else b""
    empty = [full_box(kind, 0, 0, bytes(4)) for kind in (b"stts", b"stsc")]
    sizes = [full_box(b"stsz", 0, 0, bytes(8)), full_box(b"stco", 0, 0, bytes(4))]
    table = box(b"stbl", proven.descriptions, *empty, *sizes, proven.rolls)
    information = box(b"minf", *proven.information, table)
    media = box(b"mdia", proven.media_header, *proven.described, information)
    return file_type(b"ftyp", *BRANDS) + box(
        b"moov",
        _movie_header(proven.timescale),
        box(b"trak", proven.track_header, edits, media),
        box(
            b"mvex",
            *([] if end is None else [full_box(b"mehd", 1, 0, struct.pack(">Q", end))]),
            full_box(b"trex", 0, 0, struct.pack(">5I", TRACK_ID, 1, 0, 0, 0)),
        ),
        *pssh,
    )


def _movie_header(timescale: int) -> bytes:
    rate_and_volume = struct.pack(">IHHQ", 0x10000, 0x100, 0, 0)
    return full_box(
        b"mvhd",
        0,
        0,
        struct.pack(">4I", 0, 0, timescale, 0),
        rate_and_volume,
        _UNITY,
        bytes(24),
        struct.pack(">I", TRACK_ID + 1),
    )


def _all(read: Read, part: Section) -> bytes:
    return read(part.begin, part.end - part.begin)


def _kept(read: Read, parent: Section, kinds: tuple[bytes, ...]) -> Iterator[bytes]:
    found = list(boxes(read, parent.content, parent.end))
    for kind in kinds:
        part = first(found, kind)
        if part is not None:
            yield _all(read, part)


def _without_duration(header: bytes, *, number: bool) -> tuple[bytes, int]:
    """Return a tkhd (with ``number``) or mdhd with the duration 0, and the track ID or timescale that it had.

    A tkhd also gets the track ID of a CMAF track. In both boxes two dates precede the field; the version states their
    widths.
    """
    is_long = header[8] == _LONG_FIELDS
    place = 28 if is_long else 20
    stated = int.from_bytes(header[place : place + 4])
    gap = 4 if number else 0  # tkhd has a reserved field before the duration
    width = 8 if is_long else 4
    begin = place + 4 + gap
    value = TRACK_ID if number else stated
    return header[:place] + value.to_bytes(4) + bytes(gap + width) + header[begin + width :], stated
