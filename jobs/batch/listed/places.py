"""Finds the files of folders, patterns and storage prefixes, and the rows of lists, one at a time."""

import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TextIO

from ....actors.media.location import LOCAL_PROTOCOLS, is_local, local_path, split_protocol, without_query
from ....actors.media.storage_retry import is_away
from ....actors.media.stores import open_store
from ....errors import CodecfleetError, InputNotFound, InputUnreadable, StorageFailed
from ...join.publish import WORK_SUFFIX
from .manifest import ManifestFormat, ManifestRow, read_manifest
from .template import InputName

STDIN: Final = "-"
VIDEO_SUFFIXES: Final = frozenset(
    f".{name}"
    for name in (
        *("mp4", "m4v", "mov", "qt", "3gp", "3g2", "mkv", "webm", "ts", "m2ts", "mts", "mpg", "mpeg", "m2v", "m1v"),
        *("vob", "avi", "flv", "f4v", "wmv", "asf", "mxf", "ogv", "ogg", "ogm", "dv", "gxf", "nut", "y4m", "vc1"),
        *("264", "h264", "265", "h265", "hevc", "266", "vvc", "ivf", "obu", "av1"),
    )
)
"""Extensions of the files that count as video in folders, patterns and prefixes."""
_MAGIC: Final = frozenset("*?[")
_ANY_FOLDERS: Final = "**"
_STEPS: Final = frozenset({".", ".."})
"""The steps ``.`` and ``..`` of a path, which are not hidden names. In an object's key they have no special meaning."""
#: Credentials at the beginning of an address; an output's name leaves them out
_PASSWORD: Final = re.compile(r"^[^/:@]*:[^/@]*@")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file that a batch's inputs name or contain."""

    source: str
    name: InputName  #: the parts from which the template makes the output's name
    row: ManifestRow  #: the line of a list; for other inputs, only ``source``
    size_bytes: int | None = None  #: the file's size; None if the listing does not state it
    is_video: bool = True  #: whether the extension is that of a video; an input named directly counts as video


def list_inputs(inputs: Iterable[str], *, stdin: TextIO | None = None) -> Iterator[Listed]:
    """Yield the files of all inputs: sorted by name in a folder or prefix, otherwise in the order given.

    Raises:
        InputNotFound: a place does not exist, or a pattern matches nothing.
        InputUnreadable: a list cannot be read.
        StorageFailed: a store or folder cannot be listed.
        UsageError: a line of a list is invalid.
    """
    for each in inputs:
        yield from _list_one(each, stdin or sys.stdin)


def _list_one(place: str, stdin: TextIO) -> Iterator[Listed]:
    if place == STDIN:
        yield from _from_list(stdin, ManifestFormat.PLAIN, "stdin")
    elif not is_local(place):
        yield from _remote(place)
    elif (path := local_path(place)).is_dir():
        yield from _folder(path)
    elif path.exists():
        yield from _list_or_file(path)
    elif _MAGIC.intersection(place):
        yield from _pattern(split_protocol(place)[1])
    else:
        raise InputNotFound(f"there is nothing at {place}", "Check the path; put a pattern into quotes.")


def _list_or_file(path: Path) -> Iterator[Listed]:
    try:
        form = ManifestFormat(path.suffix.lower())
    except ValueError:
        yield _named(ManifestRow(str(path)), str(Path.cwd()))
        return
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
            yield from _from_list(lines, form, str(path))
    except OSError as error:
        raise InputUnreadable(f"the list {path} cannot be read: {error.strerror}", "Check its permissions.") from None


def _from_list(lines: Iterable[str], form: ManifestFormat, name: str) -> Iterator[Listed]:
    here = str(Path.cwd())
    for row in read_manifest(lines, form, name):
        yield _named(row, here)


def _named(row: ManifestRow, here: str) -> Listed:
    """Return an input that was named directly; a relative path starts at the current folder, ``here``.

    ``Path`` is not used: it would take three times as long, and lists are long.
    """
    protocol, name = split_protocol(row.source)
    if protocol not in LOCAL_PROTOCOLS:
        return Listed(row.source, InputName.of(_open_name(row.source)), row)
    source, folder = posixpath.normpath(posixpath.join(here, name)), f"{here.rstrip('/')}/"
    below = source.removeprefix(folder) if source.startswith(folder) else source.lstrip("/")
    return Listed(source, InputName.of(below), row, _size(source))


def _open_name(url: str) -> str:
    """Return an address without password and query, from which an output's name is made."""
    return _PASSWORD.sub("", without_query(url).partition("://")[2].lstrip("/"))


def _folder(root: Path) -> Iterator[Listed]:
    """Yield the files below a folder, sorted, without hidden files and unfinished work.

    Links to folders are not followed.
    """
    root = root.absolute()
    for path in _walk(str(root)):
        below = os.path.relpath(path, root)
        yield Listed(path, InputName.of(below), ManifestRow(path), _size(path), _is_video(path))


def _walk(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise StorageFailed(f"{folder} cannot be listed: {error.strerror}", "Check its permissions.") from None
    for entry in entries:
        if _is_left_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        elif _is_file(entry):
            yield entry.path


def _pattern(pattern: str) -> Iterator[Listed]:
    """Yield the files that a pattern matches; the folder before its first wildcard is the root."""
    fixed = pattern[: min(pattern.index(each) for each in _MAGIC if each in pattern)]
    root = Path(fixed.rpartition("/")[0] or ("/" if fixed.startswith("/") else ".")).absolute()
    parts = pattern.removeprefix(fixed.rpartition("/")[0]).lstrip("/").split("/")
    if parts[-1] == _ANY_FOLDERS:
        parts.append("*")
    found = {os.path.normpath(path) for path in _matches(str(root), parts)}
    for path in sorted(found):
        below = os.path.relpath(path, root)
        yield Listed(path, InputName.of(below), ManifestRow(path), _size(path), _is_video(path))
    if not found:
        raise InputNotFound(f"no file matches {pattern}", "Check the pattern; ** matches any folders.")


def _matches(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield the files below a folder that match a pattern's parts, unsorted and with some repeated.

    Links to folders are not followed, since they may loop.
    """
    part, rest = parts[0], parts[1:]
    if part == _ANY_FOLDERS:
        yield from _matches(folder, rest)
    for path, is_folder, is_file in _entries(folder, part):
        if rest and is_folder:
            yield from _matches(path, parts if part == _ANY_FOLDERS else rest)
        elif not rest and is_file and not _is_left_out(posixpath.basename(path)):
            yield path


def _entries(folder: str, part: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield (path, whether it is a real folder, whether it is a file) for each match of one pattern part in a folder.

    As in shells, only a part that begins with a dot matches hidden names, and unreadable folders match nothing.
    """
    if not _MAGIC.intersection(part):
        named = Path(folder, part)
        yield str(named), named.is_dir() and not named.is_symlink(), named.is_file()
        return
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(folder) as found:
        entries.extend(found)
    for entry in entries:
        if fnmatchcase(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
            yield entry.path, entry.is_dir(follow_symlinks=False), _is_file(entry)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a file or a dangling link; for a dangling link, the try reports the missing file."""
    try:
        return entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists())
    except OSError:  # a link that leads to itself
        return True


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - lists are long, and ``Path`` takes three times as long
    except (OSError, ValueError):
        return None  # the try of this file reports the error


def _remote(url: str) -> Iterator[Listed]:
    """Yield the objects under a prefix or pattern, or the one object that has this name."""
    protocol = url.partition("://")[0]
    try:
        store, root = open_store(url)
        store.invalidate_cache()
        name = without_query(root)
        is_pattern = bool(_MAGIC.intersection(name))
        # A web server can list at most a folder (a URL that ends in /). Any other URL is taken as one file, unchecked;
        # the job finds out whether it exists.
        is_on_web = protocol in ("http", "https") and not name.endswith("/")
        if not is_pattern and (is_on_web or store.isfile(root)):
            yield from _remote_file(url)
            return
        found: dict[str, dict[str, Any]] = (store.glob if is_pattern else store.find)(root, detail=True)
    except FileNotFoundError as error:
        if is_away(error.__cause__):
            raise StorageFailed(
                f"{url} cannot be listed: {error.__cause__}", "Check the address, then start again."
            ) from error
        found, is_pattern = {}, False
    except CodecfleetError:
        raise
    except Exception as error:  # each kind of store raises different errors
        raise StorageFailed(f"{url} cannot be listed: {error}", "Check the address and the credentials.") from error
    if not found:
        raise InputNotFound(f"there is nothing under {url}", "Check the address.")
    if is_pattern:
        root = root[: min(root.index(each) for each in _MAGIC if each in root)].rpartition("/")[0]
    for path, facts in sorted(found.items()):
        below = path.removeprefix(root).lstrip("/")
        if facts.get("type", "file") == "file" and not any(_is_left_out(part) for part in below.split("/")):
            source = path if "://" in path else f"{protocol}://{path.lstrip('/')}"
            yield Listed(source, InputName.of(below), ManifestRow(source), facts.get("size"), _is_video(path))


def _remote_file(url: str) -> Iterator[Listed]:
    try:
        form = ManifestFormat(posixpath.splitext(without_query(url))[1].lower())
    except ValueError:
        yield _named(ManifestRow(url), "")
        return
    store, path = open_store(url)
    with store.open(path, "rt", encoding="utf-8", errors="surrogateescape", newline="") as lines:
        yield from _from_list(lines, form, url)


def _is_left_out(name: str) -> bool:
    return (name.startswith(".") and name not in _STEPS) or name.endswith(WORK_SUFFIX)


def _is_video(path: str) -> bool:
    return posixpath.splitext(path)[1].lower() in VIDEO_SUFFIXES
