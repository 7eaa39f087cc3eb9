"""Finds compat packages on the disk: libcuda and what belongs to it (CUDA Compatibility 3.2.1 and 3.2.2).

A package of a network repository lies in a toolkit's folder, with links. One that was taken from a runfile lies
wherever its user put it, and its links are made by hand or not at all. So versioned files are looked for.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..report.absence import Absence, Unavailable
from .elf_note import forward_note_of
from .report import LINKS, CudaLibrary

_LIBRARY_VERSION: Final = re.compile(r"^libcuda\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPANION: Final = re.compile(r"^(lib[a-z-]+)\.so\.(\d{3,}(?:\.\d+)+)$")
_COMPAT_FOLDER: Final = re.compile(r"^compat([-_].+)?$|^cuda-compat")
_NO_VERSION: Final = Unavailable(Absence.NOT_FOUND, "the library's name carries no driver version")


def compat_libraries(root: Path, folders: Iterable[str] = ()) -> tuple[CudaLibrary, ...]:
    """Return the newest libcuda of each folder for compat packages, and of ``folders``, whether or not it is linked.

    ``folders`` are those that libraries are searched in. A folder that has only the driver's own libcuda counts too:
    ``report.is_compat_library`` tells them apart.
    """
    searched = [*sorted(root.glob("usr/local/cuda*/compat*")), *(root / folder.lstrip("/") for folder in folders)]
    found = {_newest(folder.resolve()) for folder in searched if folder.is_dir()}
    return tuple(library_of(str(path)) for path in sorted(found - {None}, key=str))


def _newest(folder: Path) -> Path | None:
    """Return the libcuda of the newest version in a folder; one without a version where there is no other."""
    linked = folder / "libcuda.so.1"
    versioned = [path for path in folder.glob("libcuda.so.*") if _LIBRARY_VERSION.match(path.name) and path.is_file()]
    newest = max(versioned, key=lambda path: tuple(map(int, path.name.split(".")[2:])), default=None)
    return newest.resolve() if newest is not None else linked.resolve() if linked.is_file() else None


def library_of(path: str) -> CudaLibrary:
    """Return what a file that is, or could be, the machine's libcuda says of itself, and what lies beside it."""
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
    """Return the versions of the libraries in a folder, by name: libcuda's own where there is one, else the newest."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("lib*.so.*")):
        if (named := _COMPANION.match(path.name)) and named[1] in LINKS and path.is_file():
            found.setdefault(named[1], []).append(named[2])
    return {name: version if version in versions else versions[-1] for name, versions in found.items()}
