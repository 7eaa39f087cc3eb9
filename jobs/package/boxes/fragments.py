"""Writes the boxes of fragments: ISO/IEC 14496-12 with the constraints of CMAF, ISO/IEC 23000-19, clause 7."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ....errors import Unsupported

TRACK_ID: Final = 1
_FIELD_MAX: Final = 0xFFFFFFFF
_DEFAULT_BASE_IS_MOOF: Final = 0x020000
_DEFAULT_DURATION: Final = 0x08
_DEFAULT_FLAGS: Final = 0x20
_DATA_OFFSET: Final = 0x01
_FIRST_FLAGS: Final = 0x04
_DURATIONS: Final = 0x100
_SIZES: Final = 0x200
_OFFSETS: Final = 0x800
_SYNC: Final = 0x02000000  # depends on no other sample
_NOT_SYNC: Final = 0x01010000  # depends on others
_STARTS_WITH_SYNC: Final = 0x90000000  # SAP type 1, at the beginning
_HEAD_BYTES: Final = 8
_ONE_OFFSET_BYTES: Final = 20  # the size of a saio with one offset
_ENTRIES_AT: Final = 16  # where the entries begin in senc
_HAS_RANGES: Final = 0x02
_LARGEST_REFERENCE: Final = 0x7FFFFFFF  # the field has 31 bits
_MOST_REFERENCES: Final = 0xFFFF
_ROLL: Final = b"roll"


def box(kind: bytes, *contents: bytes) -> bytes:
    """Return a box: its size, its kind and its contents."""
    size = _HEAD_BYTES + sum(map(len, contents))
    return struct.pack(">I4s", size, kind) + b"".join(contents)


def full_box(kind: bytes, version: int, flags: int, *contents: bytes) -> bytes:
    """Return a box with a version and flags."""
    return box(kind, struct.pack(">I", version << 24 | flags), *contents)


def file_type(kind: bytes, *brands: bytes) -> bytes:
    """Return ``ftyp`` or ``styp``; the first brand is the major one."""
    return box(kind, brands[0], struct.pack(">I", 0), *brands)


SEGMENT_TYPE: Final = file_type(b"styp", b"msdh", b"iso6", b"cmfs")
"""The first box of each segment file: it states a DASH media segment (ISO/IEC 23009-1, 6.3.4.2) and a CMAF segment."""


class SampleRun(NamedTuple):
    """The samples of a fragment, in decoding order; times are in ticks. Only the first picture of video is a keyframe.

    ``decode`` is the first decoding time. ``offsets`` are presentation times minus decoding times, and never negative.
    """

    decode: int
    durations: Sequence[int]
    sizes_bytes: Sequence[int]
    offsets: Sequence[int]
    is_video: bool


class SampleCipher(NamedTuple):
    """How a sample is encrypted, as ``senc`` states it (ISO/IEC 23001-7, 7.2)."""

    iv: bytes  #: b"" if the header states an IV for all samples
    ranges: bytes  #: How many parts, then how many bytes of each are clear and encrypted; b"" if all is encrypted


def fragment_head(number: int, run: SampleRun, *, rolls: bool = False, ciphers: Sequence[SampleCipher] = ()) -> bytes:
    """Return a fragment's ``moof``, and the head of its ``mdat``, which the bytes of the samples must follow.

    ``number`` counts the track's fragments from 1. ``rolls`` puts all samples into the header's roll group,
    which states how much earlier a decoder of sound must start. ``ciphers`` has an entry for each encrypted sample.
    Raises Unsupported: the samples need 4 GiB or more.
    """
    size_bytes = sum(run.sizes_bytes) + _HEAD_BYTES
    if size_bytes > _FIELD_MAX:
        raise Unsupported(f"a fragment of {size_bytes} bytes is too large for mp4", "Use a shorter keyframe interval.")
    # The offset of the samples depends on the size of the box, but that size does not depend on the offset.
    head = _movie_fragment(number, run, 0, rolls=rolls, ciphers=ciphers)
    head = _movie_fragment(number, run, len(head) + _HEAD_BYTES, rolls=rolls, ciphers=ciphers)
    return head + struct.pack(">I4s", size_bytes, b"mdat")


def _movie_fragment(
    number: int, run: SampleRun, data_offset: int, *, rolls: bool, ciphers: Sequence[SampleCipher]
) -> bytes:
    is_even = len(set(run.durations)) == 1
    flags = _NOT_SYNC if run.is_video else _SYNC
    header = full_box(
        b"tfhd",
        0,
        _DEFAULT_BASE_IS_MOOF | _DEFAULT_FLAGS | (_DEFAULT_DURATION if is_even else 0),
        struct.pack(">I", TRACK_ID),
        struct.pack(">I", run.durations[0]) if is_even else b"",
        struct.pack(">I", flags),
    )
    time = full_box(b"tfdt", 1, 0, struct.pack(">Q", run.decode))
    group = full_box(b"sbgp", 0, 0, _ROLL, struct.pack(">3I", 1, len(run.durations), 1)) if rolls else b""
    samples = _track_run(run, data_offset, states_durations=not is_even)
    count = full_box(b"mfhd", 0, 0, struct.pack(">I", number))
    parts = (header, time, samples, group)
    before = 2 * _HEAD_BYTES + len(count) + sum(map(len, parts))
    return box(b"moof", count, box(b"traf", *parts, _encryption(ciphers, before)))


def _encryption(ciphers: Sequence[SampleCipher], before: int) -> bytes:
    """Return ``saiz``, ``saio`` and ``senc``, which follow ``before`` bytes of the fragment.

    They are empty if the header says all that a player needs.
    """
    rows = [each.iv + each.ranges for each in ciphers]
    if not any(rows):
        return b""
    sizes = full_box(b"saiz", 0, 0, struct.pack(">BI", 0, len(rows)), bytes(map(len, rows)))
    offset = before + len(sizes) + _ONE_OFFSET_BYTES + _ENTRIES_AT
    place = full_box(b"saio", 0, 0, struct.pack(">II", 1, offset))
    has_ranges = any(each.ranges for each in ciphers)
    entries = full_box(b"senc", 0, _HAS_RANGES if has_ranges else 0, struct.pack(">I", len(rows)), *rows)
    return sizes + place + entries


def _track_run(run: SampleRun, data_offset: int, *, states_durations: bool) -> bytes:
    states_offsets = any(run.offsets)
    columns = [
        *([run.durations] if states_durations else []),
        run.sizes_bytes,
        *([run.offsets] if states_offsets else []),
    ]
    form = struct.Struct(f">{'I' * len(columns)}")
    flags = (
        _DATA_OFFSET
        | _SIZES
        | (_FIRST_FLAGS if run.is_video else 0)
        | (_DURATIONS if states_durations else 0)
        | (_OFFSETS if states_offsets else 0)
    )
    head = struct.pack(">Ii", len(run.sizes_bytes), data_offset)
    first = struct.pack(">I", _SYNC) if run.is_video else b""
    rows = b"".join(form.pack(*row) for row in zip(*columns, strict=True))
    return full_box(b"trun", 0, flags, head, first, rows)


class Reference(NamedTuple):
    """A segment's entry in the segment index: its size, and its duration in ticks."""

    size_bytes: int
    duration: int


def index_size(segments: int) -> int:
    """Return the size of a segment index in bytes. Raises Unsupported: it cannot name that many segments."""
    if segments > _MOST_REFERENCES:
        message = f"a segment index names at most {_MOST_REFERENCES} segments, not {segments}"
        raise Unsupported(message, "Use longer segments.")
    return len(segment_index(1, 0, [Reference(0, 0)] * segments))


def segment_index(timescale: int, start: int, segments: Sequence[Reference]) -> bytes:
    """Return ``sidx`` (8.16.3) for segments that follow it without a gap and begin with keyframes.

    ``start`` is the time at which the track begins, in ticks, apart from sound that an edit list hides. Raises
    Unsupported: a segment has 2 GiB or more.
    """
    if any(each.size_bytes > _LARGEST_REFERENCE for each in segments):
        raise Unsupported("a segment index names no segment of 2 GiB or more", "Use shorter segments.")
    rows = b"".join(struct.pack(">3I", *each, _STARTS_WITH_SYNC) for each in segments)
    head = struct.pack(">IIQQHH", TRACK_ID, timescale, start, 0, 0, len(segments))
    return full_box(b"sidx", 1, 0, head, rows)
