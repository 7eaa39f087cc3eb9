"""Telling one version of a source from another: what changes when it is replaced or written to."""

from collections.abc import Hashable
from typing import Final

from .location import is_local, local_path
from .opening import store_options

__all__ = ["local_version", "source_version"]

_MARKS: Final = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "updated", "created")
"""What stores call the mark of a file's content, or the time of its last change."""


def local_version(source: str) -> tuple[int, ...] | None:
    """Return device, inode, bytes and time of the last change of a local source; None where it is not there."""
    try:
        found = local_path(source).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def source_version(source: str) -> Hashable | None:
    """Return the version of a local or remote source; None where it is not there, or its store does not tell."""
    if is_local(source):
        return local_version(source)
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(source, **store_options(source))
        told = filesystem.info(path)
    except Exception:  # noqa: BLE001 - every store raises errors of its own; opening it says what is wrong
        return None
    marks = tuple(str(told[mark]) for mark in _MARKS if told.get(mark))
    return (told.get("size"), *marks) if marks else None
