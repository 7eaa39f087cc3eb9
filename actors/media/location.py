"""The location of a source or an output: on this machine, or at an address of an fsspec protocol."""

import re
from pathlib import Path
from typing import Final

_WEB: Final = ("http", "https")
LOCAL_PROTOCOLS: Final = (None, "file", "local")
"""fsspec's names of this machine's files; None for a plain path."""


def split_protocol(url: str) -> tuple[str | None, str]:
    """Return fsspec's name of a ``url``'s protocol, None for a plain path, and what follows it."""
    if "://" not in url and not url.startswith("data:"):
        return None, url
    from fsspec import core

    protocol, rest = core.split_protocol(url)
    return protocol, rest


def is_local(url: str) -> bool:
    """Return whether ``url`` names a file of this machine."""
    return split_protocol(url)[0] in LOCAL_PROTOCOLS


def local_path(url: str) -> Path:
    """Return the path of a local ``url``, with or without its ``file://``."""
    return Path(split_protocol(url)[1])


def without_query(url: str) -> str:
    """Return the part of a web address that names the file; any other ``url`` unchanged."""
    return re.split("[?#]", url, maxsplit=1)[0] if split_protocol(url)[0] in _WEB else url


def name_of(url: str) -> str:
    """Return the file's name: the last part of a path or address, without its query."""
    return without_query(url).rstrip("/").rpartition("/")[2]


def absolute(url: str) -> str:
    """Return a ``url`` that names the same file from any working directory."""
    return str(local_path(url).absolute()) if is_local(url) else url
