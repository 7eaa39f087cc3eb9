"""Reads the boxes of a written track: header, segment index and fragments (ISO/IEC 14496-12)."""

import struct
from typing import Final, NamedTuple

from ....actors.media.structure import (
    LONG_HEAD_BYTES,
    Read,
    Section,
    box_length,
    boxes,
    descendant,
    first,
    tracks_of_movie,
)
from ....errors import ProofFailed

_ADVICE: Final = "Nothing was published. Please report this error together with the input and the options."
_NOT_SYNC: Final = 0x00010000
_SAP: Final = 0x90000000
_BASE_IS_MOOF: Final = 0x020000
_SAMPLE_FIELDS: Final = {0x100: "I", 0x200: "I", 0x400: "I", 0x800: "I"}
"""The flags of ``trun`` for the fields of a sample, in the fields' order, and the ``struct`` format of each field."""


class StatedHeader(NamedTuple):
    """The values in ``ftyp`` and ``moov``. ``edit`` is the tick that an edit list puts at time 0; 0 without one."""

    brands: tuple[bytes, ...]
    size_bytes: int
    tracks: int
    timescale: int
    edit: int
    sample_entry: bytes


class StatedSegment(NamedTuple):
    """A segment's entry in the index: its size, its duration in ticks, and whether it begins with a keyframe."""

    size_bytes: int
    duration: int
    begins_with_keyframe: bool


class StatedIndex(NamedTuple):
    """A segment index; times are in ticks. ``first_offset`` is the number of bytes between it and the first segment."""

    size_bytes: int
    timescale: int
    start: int
    first_offset: int
    segments: tuple[StatedSegment, ...]


class StatedFragment(NamedTuple):
    """A fragment. ``decode`` is the decoding time of its first sample, in ticks.

    ``first_sample_end`` is the position in the track's bytes at which the first sample ends.
    """

    number: int
    decode: int
    samples: "tuple[StatedSample, ...]"
    first_sample_end: int


class StatedSample(NamedTuple):
    """A sample of a fragment. ``offset`` is its presentation time minus its decoding time, in ticks."""

    duration: int
    size_bytes: int
    flags: int
    offset: int

    @property
    def is_key(self) -> bool:
        """Whether decoding can start at this sample."""
        return not self.flags & _NOT_SYNC


def brands(read: Read, part: Section) -> tuple[bytes, ...]:
    """Return the major brand of ``ftyp`` or ``styp``, then its compatible brands."""
    content = read(part.content, part.end - part.content)
    return content[:4], *(content[at : at + 4] for at in range(8, len(content), 4))


def stated_header(read: Read) -> StatedHeader:
    """Read the header at the beginning of a track's bytes. Raises ProofFailed: it is not a CMAF header."""
    parts = boxes(read, 0, None)
    kind, movie = next(parts, None), next(parts, None)
    track = next(tracks_of_movie(read), None)
    media = descendant(read, track, b"mdia")
    times = descendant(read, media, b"mdhd")
    entries = descendant(read, media, b"minf", b"stbl", b"stsd")
    if kind is None or movie is None or (kind.kind, movie.kind) != (b"ftyp", b"moov") or not times or not entries:
        raise ProofFailed("the header is not ftyp and moov of a track", _ADVICE)
    is_long = read(times.content, 1) == b"\1"
    edits = descendant(read, track, b"edts", b"elst")
    return StatedHeader(
        brands=brands(read, kind),
        size_bytes=movie.end,
        tracks=len(list(tracks_of_movie(read))),
        timescale=int.from_bytes(read(times.content + (20 if is_long else 12), 4)),
        edit=0 if edits is None else _edit(read(edits.content, edits.end - edits.content)),
        sample_entry=read(entries.content + 8, entries.end - entries.content - 8),
    )


def _edit(edits: bytes) -> int:
    version, count = edits[0], int.from_bytes(edits[4:8])
    if version or count != 1:
        raise ProofFailed(f"the edit list has {count} edits of version {version}", _ADVICE)
    duration, place, rate = struct.unpack_from(">IiI", edits, 8)
    if duration or rate != 1 << 16 or place <= 0:
        raise ProofFailed(f"the edit does more than move times: {duration}, {place}, {rate}", _ADVICE)
    return int(place)


def stated_index(read: Read, begin: int) -> StatedIndex:
    """Read the segment index at ``begin``. Raises ProofFailed: there is none of version 1, or its count is wrong."""
    part = next(boxes(read, begin, None), None)
    content = b"" if part is None or part.kind != b"sidx" else read(part.content, part.end - part.content)
    if part is None or content[:1] != b"\1":
        raise ProofFailed("there is no segment index after the header", _ADVICE)
    _, timescale, start, first_offset, _, count = struct.unpack_from(">IIQQHH", content, 4)
    rows = struct.iter_unpack(">3I", content[32:])
    segments = tuple(StatedSegment(size, duration, access == _SAP) for size, duration, access in rows)
    if len(segments) != count:
        raise ProofFailed(f"the segment index counts {count} segments and names {len(segments)}", _ADVICE)
    return StatedIndex(part.end - part.begin, timescale, start, first_offset, segments)


def stated_fragments(read: Read, begin: int, end: int) -> tuple[tuple[bytes, ...], list[StatedFragment]]:
    """Return the brands of the ``styp`` at ``begin``, or () without one, and the fragments up to ``end``.

    Raises ProofFailed: there are other boxes or bytes, or a fragment's boxes are incomplete or contradictory.
    """
    found = list(boxes(read, begin, end))
    has_type = bool(found) and found[0].kind == b"styp"
    pairs = found[has_type:]
    if [part.kind for part in pairs] != [b"moof", b"mdat"] * (len(pairs) // 2):
        kinds = " ".join(part.kind.decode("latin-1") for part in pairs)
        raise ProofFailed(f"a segment has the boxes {kinds!r} instead of moof and mdat in turn", _ADVICE)
    if not found or found[-1].end != end:
        raise ProofFailed(f"the boxes end at byte {found[-1].end if found else begin} instead of {end}", _ADVICE)
    fragments = [_fragment(read, *pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
    return brands(read, found[0]) if has_type else (), fragments


def _fragment(read: Read, movie: Section, data: Section) -> StatedFragment:
    number = descendant(read, movie, b"mfhd")
    track = first(boxes(read, movie.content, movie.end), b"traf")
    header, time, run = (descendant(read, track, kind) for kind in (b"tfhd", b"tfdt", b"trun"))
    if number is None or header is None or time is None or run is None:
        raise ProofFailed(f"the fragment at byte {movie.begin} lacks mfhd, tfhd, tfdt or trun", _ADVICE)
    defaults = _defaults(read(header.content, header.end - header.content))
    offset, samples = _samples(read(run.content, run.end - run.content), defaults)
    size_bytes = sum(each.size_bytes for each in samples)
    stated_bytes = box_length(read(data.begin, LONG_HEAD_BYTES))
    if movie.begin + offset != data.content or not size_bytes + data.content - data.begin == stated_bytes:
        raise ProofFailed(f"the samples of the fragment at byte {movie.begin} do not fill its mdat", _ADVICE)
    _check_entries(read, movie, track, len(samples))
    return StatedFragment(
        number=int.from_bytes(read(number.content + 4, 4)),
        decode=int.from_bytes(read(time.content + 4, time.end - time.content - 4)),
        samples=samples,
        first_sample_end=data.content + samples[0].size_bytes,
    )


def _check_entries(read: Read, movie: Section, track: Section | None, samples: int) -> None:
    """Check that ``saiz`` and ``saio`` lead to the entries of ``senc``, one for each encrypted sample."""
    parts = [descendant(read, track, kind) for kind in (b"saiz", b"saio", b"senc")]
    if parts == [None, None, None]:
        return
    sizes, places, entries = (b"" if part is None else read(part.content, part.end - part.content) for part in parts)
    at = 0 if parts[2] is None else parts[2].content + 8 - movie.begin
    is_whole = sizes[5:9] == entries[4:8] == samples.to_bytes(4) and len(entries) == 8 + sum(sizes[9:])
    if not is_whole or places[4:] != struct.pack(">II", 1, at):
        raise ProofFailed(f"the fragment at byte {movie.begin} misstates how samples are encrypted", _ADVICE)


def _defaults(header: bytes) -> StatedSample:
    """Return a sample with the defaults of ``tfhd``; a missing default is 0."""
    flags, at, found = int.from_bytes(header[1:4]), 8, dict[int, int]()
    if not flags & _BASE_IS_MOOF:
        raise ProofFailed("a fragment does not count positions from its own beginning", _ADVICE)
    for field, width in ((0x1, 8), (0x2, 4), (0x8, 4), (0x10, 4), (0x20, 4)):
        if flags & field:
            found[field] = int.from_bytes(header[at : at + width])
            at += width
    return StatedSample(found.get(0x8, 0), found.get(0x10, 0), found.get(0x20, 0), 0)


def _samples(run: bytes, defaults: StatedSample) -> tuple[int, tuple[StatedSample, ...]]:
    """Return the position of the samples, relative to the ``moof``, and the samples of ``trun``."""
    flags, count, at, offset, first_flags = int.from_bytes(run[1:4]), int.from_bytes(run[4:8]), 8, 0, None
    if flags & 0x1:
        offset, at = int.from_bytes(run[at : at + 4], signed=True), at + 4
    if flags & 0x4:
        first_flags, at = int.from_bytes(run[at : at + 4]), at + 4
    form = struct.Struct(">" + "".join(kind for field, kind in _SAMPLE_FIELDS.items() if flags & field))
    if len(run) != at + form.size * count or not count or run[0] != 0:
        raise ProofFailed(f"a run of version {run[0]} with {count} samples has {len(run)} bytes", _ADVICE)
    samples = []
    for fields in (iter(form.unpack_from(run, at + form.size * number)) for number in range(count)):
        stated = zip(_SAMPLE_FIELDS, defaults, strict=True)
        samples.append(StatedSample(*(next(fields) if flags & field else default for field, default in stated)))
    if first_flags is not None:
        samples[0] = samples[0]._replace(flags=first_flags)
    return offset, tuple(samples)
