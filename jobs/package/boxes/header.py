"""Writes a CMAF header (ISO/IEC 23000-19, 7.3.1) from a track of a proven mp4 file.

What describes the track is copied unchanged: the sample entry with its codec configuration, colours and HDR values, the
language, and how the picture is turned. What depends on the file is written anew.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....actors.media.headers import track_number
from ....actors.media.structure import Read, Section, boxes, descendant, first, tracks_of_movie
from ....errors import ProofFailed
from .fragments import TRACK_ID, box, file_type, full_box

BRANDS: Final = (b"iso6", b"cmfc")
"""Fragments that count positions and times from themselves (14496-12, annex E), and CMAF (23000-19, annex A)."""
_UNITY: Final = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_LONG_FIELDS: Final = 1
_KEPT_OF_MEDIA: Final = (b"hdlr", b"elng")
_KEPT_OF_INFORMATION: Final = (b"vmhd", b"smhd", b"dinf")
_ADVICE: Final = "Please report this error together with the file."


@dataclass(frozen=True, slots=True)
class ProvenHeader:
    """The boxes of one track of a proven file, with their heads, that a CMAF header copies."""

    track_header: bytes  #: tkhd, with the number and without the duration of the file
    media_header: bytes  #: mdhd, without the duration of the file
    timescale: int
    described: tuple[bytes, ...]  #: what identifies the track in ``mdia``
    information: tuple[bytes, ...]  #: what identifies the track in ``minf``
    descriptions: bytes  #: stsd
    rolls: bytes  #: sgpd for sound whose decoders must start earlier; b"" if the file has none

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
    """Read what a CMAF header copies. Raises ProofFailed: the track has no or several sample descriptions."""
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
        raise ProofFailed(message, "Encode the track anew, so that its coding stays the same.")
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


def cmaf_header(proven: ProvenHeader, *, end: int, edit: int) -> bytes:
    """Return ``ftyp`` and ``moov``.

    ``end`` is when the track ends, in its ticks. An edit list presents the media from tick ``edit`` at time 0; the edit
    has no duration, as in each file whose fragments follow its header (14496-12, 8.6.6.1).
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
            full_box(b"mehd", 1, 0, struct.pack(">Q", end)),
            full_box(b"trex", 0, 0, struct.pack(">5I", TRACK_ID, 1, 0, 0, 0)),
        ),
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
    """Return a tkhd (with ``number``) or mdhd with the duration 0, and the field before it: track ID or timescale.

    The track ID becomes that of a CMAF track. Both boxes have it after two dates, whose widths the version states.
    """
    is_long = header[8] == _LONG_FIELDS
    place = 28 if is_long else 20
    stated = int.from_bytes(header[place : place + 4])
    gap = 4 if number else 0  # tkhd has a reserved field before the duration
    width = 8 if is_long else 4
    begin = place + 4 + gap
    value = TRACK_ID if number else stated
    return header[:place] + value.to_bytes(4) + bytes(gap + width) + header[begin + width :], stated
