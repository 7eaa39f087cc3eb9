"""Where a source or an output is: on this machine, or behind an fsspec protocol."""

from pathlib import Path

from fsspec.core import split_protocol

__all__ = ["absolute", "is_local", "local_path"]


def is_local(url: str) -> bool:
    """Tell whether ``url`` names a file of this machine."""
    return split_protocol(url)[0] in (None, "file", "local")


def local_path(url: str) -> Path:
    """Return the path of a local ``url``, with or without its ``file://``."""
    return Path(split_protocol(url)[1])


def absolute(url: str) -> str:
    """Return a ``url`` that names the same file in any folder."""
    return str(local_path(url).absolute()) if is_local(url) else url
