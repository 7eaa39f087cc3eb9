"""Mutations of media files: bytes, boxes, elements, packets, truncation, concatenation. All from one seed.

A mutation is a pure function of a file's bytes, another file's bytes and a source of chance; equal seeds give equal
files.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

CONTAINERS: Final = frozenset(
    {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"udta", b"moof", b"traf", b"dinf", b"mvex", b"meta"}
)
FIELDS: Final = frozenset(
    {b"tkhd", b"mdhd", b"mvhd", b"stts", b"stsc", b"stsz", b"stco", b"ctts", b"elst", b"stsd", b"tfdt", b"trun"}
    | {b"tfhd", b"hdlr", b"avcC", b"hvcC", b"av1C", b"vpcC", b"esds", b"dOps", b"sidx", b"trex", b"stss"}
)
"""The boxes whose fields `change_field` sets."""
EXTREMES: Final = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x00010000)
TS_PACKET: Final = 188
HEAD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Box:
    """A box of an ISO base media file: where it begins, its length with its header, and its four letters."""

    place: int
    length: int
    kind: bytes


Mutation = Callable[[bytes, bytes, random.Random], bytes]


def mutated(seed: int, corpus: dict[str, bytes]) -> tuple[str, str, bytes]:
    """Return what ``seed`` makes of the corpus: the file's name, the mutations' names, and the mutated bytes."""
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    name = chance.choice(sorted(corpus))
    data, other = corpus[name], corpus[chance.choice(sorted(corpus))]
    chosen = chance.sample(MUTATIONS, chance.choice((1, 1, 1, 2)))
    for mutation in chosen:
        if data:
            data = mutation(data, other, chance)
    return name, "+".join(mutation.__name__ for mutation in chosen), data


def boxes(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[Box]:
    """Yield the boxes of an ISO base media file, outer ones first, up to the first bytes that are not a box."""
    place, end = begin, len(data) if end is None else end
    while place + 8 <= end:
        length, kind = struct.unpack_from(">I4s", data, place)
        if length < 8 or place + length > end:
            return
        yield Box(place, length, kind)
        if kind in CONTAINERS:
            yield from boxes(data, place + 8, place + length)
        place += length


def flip_bits(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Flip some bits anywhere."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 5, 50, 500))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def change_head(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Change some bytes near the beginning, where most headers are."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 10))):
        changed[chance.randrange(min(len(changed), HEAD_BYTES))] = chance.randrange(256)
    return bytes(changed)


def truncate(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Cut the file short."""
    return data[: chance.randrange(1, len(data) + 1)]


def cut_out(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Leave a piece out."""
    begin, end = _piece(data, (1, TS_PACKET, 4096, len(data) // 4), chance)
    return data[:begin] + data[end:]


def blank(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Make a piece zeros, as a hole in a download."""
    begin, end = _piece(data, (TS_PACKET, 4096, len(data) // 3), chance)
    return data[:begin] + bytes(end - begin) + data[end:]


def repeat(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Repeat a piece."""
    begin, end = _piece(data, (4 * TS_PACKET, 4096, 60_000), chance)
    return data[:end] + data[begin:end] * chance.choice((1, 3)) + data[end:]


def swap_pieces(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Exchange two neighbouring pieces, as packets that came in the wrong order."""
    size = min(chance.choice((TS_PACKET, 7 * TS_PACKET, 4096)), len(data) // 2)
    begin = size and TS_PACKET * chance.randrange((len(data) - 2 * size) // TS_PACKET + 1)
    one, two = data[begin : begin + size], data[begin + size : begin + 2 * size]
    return data[:begin] + two + one + data[begin + 2 * size :]


def append(data: bytes, other: bytes, _chance: random.Random) -> bytes:
    """Put another file behind this one."""
    return data + other


def splice(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Join the beginning of this file and the end of another."""
    return data[: chance.randrange(1, len(data) + 1)] + other[chance.randrange(len(other)) :]


def change_length(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Give a box another length."""
    found = list(boxes(data))
    if not found:
        return change_head(data, other, chance)
    box = chance.choice(found)
    values = (*EXTREMES, 7, 8, 9, box.length - 1, box.length + 1, box.length * 2, box.length // 2)
    return data[: box.place] + struct.pack(">I", chance.choice(values) & 0xFFFFFFFF) + data[box.place + 4 :]


def change_kind(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Give a box a name that does not exist: a player skips it."""
    found = list(boxes(data))
    if not found:
        return flip_bits(data, other, chance)
    box = chance.choice(found)
    return data[: box.place + 4] + b"zzzz" + data[box.place + 8 :]


def change_field(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Set fields of a box to extremes."""
    found = [box for box in boxes(data) if box.kind in FIELDS]
    if not found:
        return flip_bits(data, other, chance)
    changed, box = bytearray(data), chance.choice(found)
    for _ in range(chance.choice((1, 2, 4))):
        place = box.place + 8 + 4 * chance.randrange(1, max(2, min(box.length - 8, 120) // 4))
        if place + 4 <= len(changed):
            struct.pack_into(">I", changed, place, chance.choice((*EXTREMES, chance.randrange(1 << 32))))
    return bytes(changed)


def change_element(data: bytes, _other: bytes, chance: random.Random) -> bytes:
    """Write a length that no element of Matroska has, near the beginning."""
    lengths = (b"\x01\xff\xff\xff\xff\xff\xff\xfe", b"\x01\x00\x00\xff\xff\xff\xff\xff", b"\xff" * 8, bytes(8))
    place = chance.randrange(max(1, min(len(data) - 8, 3000)))
    return data[:place] + chance.choice(lengths) + data[place + 8 :]


def _piece(data: bytes, sizes: tuple[int, ...], chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(data))
    return begin, min(len(data), begin + chance.choice(sizes))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(flip_bits, change_head, truncate, cut_out, blank, repeat, swap_pieces, append, splice),
    *(change_length, change_length, change_kind, change_field, change_field, change_field, change_element),
)
"""The mutations that reach deepest are listed more than once."""
