"""Finds compat packages on the disk (CUDA Compatibility 3.2.1, 3.2.2), and reads the ELF note of their libcuda.

Packages from a runfile may lack links, so the search is for versioned files. The note (section ``SECTION``, owner
``OWNER``) is JSON with the CUDA version, the accepted driver branches and the kinds of devices. Orin's note has only a
CUDA version, and is two bytes longer than its section.
"""

import json
import mmap
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..report.absence import Absence, Maybe, Unavailable
from .report import LINKS, CudaLibrary, ForwardNote

_LIBRARY_VERSION: Final = re.compile(r"^libcuda\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPANION: Final = re.compile(r"^(lib[a-z-]+)\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPAT_FOLDER: Final = re.compile(r"^compat([-_].+)?$|^cuda-compat")
_NO_VERSION: Final = Unavailable(Absence.NOT_FOUND, "the library's name contains no driver version")

SECTION = b".note.cuda.fwd_compatibility"
OWNER = b"NVIDIA Corporation"
_DESCRIPTION_BYTES_MAX = 65536
_NOTE_BYTES_MAX = 2 * _DESCRIPTION_BYTES_MAX
_ENTRIES_MAX = 1024
# elf(5): 64-bit and little-endian, as is every libcuda with the note.
_ELF = b"\x7fELF\2\1"
_HEADER = struct.Struct("<40xQ10x3H")  # Elf64_Ehdr: the section headers' offset, size, number, and index of the names
_SECTION_HEADER = struct.Struct("<I20x2Q")  # Elf64_Shdr: the name (as an offset), the offset in the file, the size
_NOTE_HEADER = struct.Struct("<3I")  # Elf64_Nhdr: the size of the owner, the size of the description, the type
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?")
_NO_NOTE = Unavailable(Absence.NOT_FOUND, "the library has no note about forward compatibility")

_Bytes: TypeAlias = bytes | mmap.mmap


def compat_libraries(root: Path, folders: Iterable[str] = ()) -> tuple[CudaLibrary, ...]:
    """Return the newest libcuda in each folder for compat packages and in each of ``folders``; links may be missing.

    The result may include the driver's own libcuda; see ``report.is_compat_library``.
    """
    searched = [*sorted(root.glob("usr/local/cuda*/compat*")), *(root / folder.lstrip("/") for folder in folders)]
    found = {_newest(folder.resolve()) for folder in searched if folder.is_dir()}
    return tuple(library_of(str(path)) for path in sorted(found - {None}, key=str))


def _newest(folder: Path) -> Path | None:
    """Return the newest libcuda in a folder, or ``libcuda.so.1`` if no file name has a version."""
    linked = folder / "libcuda.so.1"
    versioned = [path for path in folder.glob("libcuda.so.*") if _LIBRARY_VERSION.match(path.name) and path.is_file()]
    newest = max(versioned, key=lambda path: tuple(map(int, path.name.split(".")[2:])), default=None)
    return newest.resolve() if newest is not None else linked.resolve() if linked.is_file() else None


def library_of(path: str) -> CudaLibrary:
    """Describe a file that is, or could be, the machine's libcuda, with the libraries in the same folder."""
    file = Path(path)
    named = _LIBRARY_VERSION.match(file.name)
    in_compat_folder = any(_COMPAT_FOLDER.search(part) for part in file.parent.parts)
    return CudaLibrary(
        path=path,
        version=named[1] if named else _NO_VERSION,
        in_compat_folder=in_compat_folder,
        note=forward_note_of(file),
        companions=_companions(file.parent, named[1] if named else ""),
        missing_links=tuple(link for link in LINKS.values() if not (file.parent / link).is_file()),
    )


def _companions(folder: Path, version: str) -> dict[str, str]:
    """Return the version of each library by name: ``version`` if the folder has it, otherwise the newest."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("lib*.so.*")):
        if (named := _COMPANION.match(path.name)) and named[1] in LINKS and path.is_file():
            found.setdefault(named[1], []).append(named[2])
    return {name: version if version in versions else versions[-1] for name, versions in found.items()}


def forward_note_of(path: Path) -> Maybe[ForwardNote]:
    """Return the note of a library file, or why there is none; never raises, whatever the file contains."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_forward_note(data)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        return Unavailable(Absence.FAILED, f"{path} cannot be read: {error}")


def read_forward_note(data: _Bytes) -> Maybe[ForwardNote]:
    """Return the note in an ELF file, or why there is none."""
    try:
        section = _section(data)
        description = None if section is None else _description(section)
        return _NO_NOTE if description is None else _meaning(description)
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        return Unavailable(Absence.FAILED, f"the library's note about forward compatibility is damaged: {error}")


def _section(data: _Bytes) -> bytes | None:
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
    # type() is used because bool is a subclass of int.
    return tuple(entry for entry in entries if type(entry) is int and 0 <= entry < 1 << 31)
