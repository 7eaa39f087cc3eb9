"""The note in which a CUDA user-mode driver says which kernel drivers it works on.

A libcuda that may be used for forward compatibility carries an ELF section ``.note.cuda.fwd_compatibility``: a note
whose owner is "NVIDIA Corporation" and whose description is JSON with the CUDA version, the driver branches it accepts
and the kinds of device. It is surer than any table, since it comes with the very file that is loaded.

The library for Orin is an oddity twice: its note holds a CUDA version alone, and claims two bytes more than its section
has. So lengths are cut to what is there, and missing lists are empty.
"""

import json
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..report.absence import Absence, Maybe, Unavailable

SECTION = b".note.cuda.fwd_compatibility"
OWNER = b"NVIDIA Corporation"
_DESCRIPTION_BYTES_MAX = 65536
_NOTE_BYTES_MAX = 2 * _DESCRIPTION_BYTES_MAX
_ENTRIES_MAX = 1024
_ELF = b"\x7fELF\2\1"
"""How a file of 64 bits and little-endian order begins: every libcuda that has the note."""
_HEADER = struct.Struct("<40xQ10x3H")
"""Where the section headers start, their size and number, and which one holds the names (elf(5), Elf64_Ehdr)."""
_SECTION_HEADER = struct.Struct("<I20x2Q")
"""A section's name (as an offset), its place in the file and its size (Elf64_Shdr)."""
_NOTE_HEADER = struct.Struct("<3I")
"""The sizes of owner and description, and the type (Elf64_Nhdr)."""
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?")
_NO_NOTE = Unavailable(Absence.NOT_FOUND, "the library has no note about forward compatibility")

_Bytes: TypeAlias = bytes | mmap.mmap


@dataclass(frozen=True, slots=True)
class ForwardNote:
    """What a libcuda says of itself.

    ``cuda_version`` is its own ("13.1"); ``drivers`` are the branches of kernel drivers that it accepts, () where it
    does not say (Orin); ``devices`` are kinds of device as numbers whose meaning is not published.
    """

    cuda_version: str
    drivers: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()


def forward_note_of(path: Path) -> Maybe[ForwardNote]:
    """Read the note of a library file; never raises, whatever the file is."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_forward_note(data)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        return Unavailable(Absence.FAILED, f"{path} cannot be read: {error}")


def read_forward_note(data: _Bytes) -> Maybe[ForwardNote]:
    """Return what the note of this ELF file says; an absence for anything else."""
    try:
        section = _section(data)
        description = None if section is None else _description(section)
        return _NO_NOTE if description is None else _meaning(description)
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        return Unavailable(Absence.FAILED, f"the library's note about forward compatibility is damaged: {error}")


def _section(data: _Bytes) -> bytes | None:
    """Return the bytes of the note's section, or None."""
    if data[: len(_ELF)] != _ELF:
        return None
    start, entry_bytes, count, names = _HEADER.unpack_from(data)
    if names >= count:
        return None
    _, names_at, names_bytes = _SECTION_HEADER.unpack_from(data, start + names * entry_bytes)
    for index in range(min(count, _ENTRIES_MAX)):
        name, place, size = _SECTION_HEADER.unpack_from(data, start + index * entry_bytes)
        at = names_at + name
        if name < names_bytes and data[at : at + len(SECTION) + 1] == SECTION + b"\0":
            return data[place : place + min(size, _NOTE_BYTES_MAX)]
    return None


def _description(section: bytes) -> bytes | None:
    """Return the description of NVIDIA's note among those of the section, or None."""
    at = 0
    while at + _NOTE_HEADER.size <= len(section):
        owner_bytes, description_bytes, _ = _NOTE_HEADER.unpack_from(section, at)
        owner_at = at + _NOTE_HEADER.size
        at = owner_at + _padded(owner_bytes)
        if section[owner_at : owner_at + owner_bytes].rstrip(b"\0") == OWNER:
            return section[at : at + min(description_bytes, _DESCRIPTION_BYTES_MAX)]
        at += _padded(description_bytes)
    return None


def _padded(size: int) -> int:
    return (size + 3) & ~3


def _meaning(description: bytes) -> Maybe[ForwardNote]:
    said = json.loads(description.partition(b"\0")[0])
    version = said.get("CUDA version") if isinstance(said, dict) else None
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        return Unavailable(Absence.FAILED, "the library's note about forward compatibility names no CUDA version")
    return ForwardNote(version, _numbers(said.get("driver")), _numbers(said.get("device")))


def _numbers(value: Any) -> tuple[int, ...]:
    entries = value if isinstance(value, list) else []
    # bool is an int to Python, and no branch.
    return tuple(entry for entry in entries if type(entry) is int and 0 <= entry < 1 << 31)
