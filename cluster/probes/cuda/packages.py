"""Finds compat packages (CUDA Compatibility, sections 3.2.1, 3.2.2) on the disk, and reads libcuda's ELF note.

Packages from a runfile may lack links, so the search is for versioned files. The note has the CUDA version, the
accepted driver branches and the kinds of devices; Orin's note has only a CUDA version.
"""

import json
import mmap
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..report.absence import Absence, Maybe, Unavailable
from .report import LINKS, CudaLibrary, ForwardNote

_LIBRARY_VERSION: Final = re.compile(r"^libcuda\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPANION: Final = re.compile(r"^(lib[a-z-]+)\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPAT_FOLDER: Final = re.compile(r"^compat([-_].+)?$|^cuda-compat")
_NO_VERSION: Final = Unavailable(Absence.NOT_FOUND, "the library's name contains no driver version")

# The note (.note.cuda.fwd_compatibility): its owner, padded with zero bytes to a multiple of four bytes, and a JSON
# text that ends with a zero byte.
_NOTE: Final = re.compile(rb"NVIDIA Corporation\0\0(\{[^\0]{1,65536})\0")
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?")
_NO_NOTE = Unavailable(Absence.NOT_FOUND, "the library has no note about forward compatibility")


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
            found = _NOTE.search(data)
            text = found[1] if found else b""
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        return Unavailable(Absence.FAILED, f"{path} cannot be read: {error}")
    return _meaning(text) if text else _NO_NOTE


def _meaning(text: bytes) -> Maybe[ForwardNote]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unavailable(Absence.FAILED, f"the library's note about forward compatibility is damaged: {error}")
    version = said.get("CUDA version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        return Unavailable(Absence.FAILED, "the library's note about forward compatibility names no CUDA version")
    return ForwardNote(version, _numbers(said.get("driver")), _numbers(said.get("device")))


def _numbers(value: Any) -> tuple[int, ...]:
    entries = value if isinstance(value, list) else []
    # type() is used because bool is a subclass of int.
    return tuple(entry for entry in entries if type(entry) is int and 0 <= entry < 1 << 31)
