"""Stores behind fsspec, opened in one way; and which version of a source lies there, or on this machine.

Silence times out, and a store's own retries stay few.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

from ...errors import InputUnreadable
from .location import is_local, local_path, split_protocol
from .storage_retry import try_again

S3_ATTEMPTS: Final = 4
"""How often botocore itself makes one request: growing pauses, 4 s in all on average. An upload's parts need that."""
HTTP_SILENCE_S: Final = 8
"""How long a web server may stay silent; fsspec asks twice before it gives up."""
S3_SILENCE_S: Final = 10
_MARKS: Final = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "updated", "created")
"""What stores call the tag of a file's content, or the time of its last change."""


def open_store(url: str) -> tuple[Any, str]:
    """Return fsspec's store of a ``url`` and the path in it. Raises the store's own errors, and fsspec's."""
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url, **_options(url))
    if _is_s3(url):
        # Else s3fs makes each request five times over again, silence and all.
        files.retries = 1
    return files, path


def _options(url: str) -> dict[str, Any]:
    if _is_s3(url):
        # One part at a time: one that is still being sent when an upload is aborted can outlive it.
        return {"config_kwargs": _s3_config(), "max_concurrency": 1}
    return _web_options() if split_protocol(url)[0] in ("http", "https") else {}


def _is_s3(url: str) -> bool:
    return split_protocol(url)[0] in ("s3", "s3a")


def _s3_config() -> dict[str, Any]:
    """Return botocore's configuration; what the user's file of fsspec says goes first."""
    from fsspec.config import conf

    own = {
        "retries": {"mode": "standard", "total_max_attempts": S3_ATTEMPTS},
        "connect_timeout": S3_SILENCE_S,
        "read_timeout": S3_SILENCE_S,
    }
    stated: Mapping[str, Any] = conf.get("s3", {}).get("config_kwargs", {})
    return own | dict(stated)


def _web_options() -> dict[str, Any]:
    """Return aiohttp's options; what the user's file of fsspec says of https goes first."""
    from fsspec.config import conf

    try:
        import aiohttp  # comes with fsspec's web support, or not
    except ImportError:
        return {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_SILENCE_S, sock_read=HTTP_SILENCE_S)
    stated: Mapping[str, Any] = conf.get("https", {}).get("client_kwargs", {})
    return {"client_kwargs": {"timeout": timeout} | dict(stated)}


def local_version(source: str) -> tuple[int, ...] | None:
    """Return device, inode, bytes and time of the last change of a local source; None where there is no file."""
    try:
        found = local_path(source).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def source_version(source: str) -> Hashable | None:
    """Return what changes when a source is replaced or written to; None where there is none, or no store states it.

    A remote one has its size, its tag and the time of its last change, as far as its store states them.
    """
    return local_version(source) if is_local(source) else remote_version(source)


def remote_version(source: str) -> tuple[int | None, *tuple[str, ...]] | None:
    """Return bytes, tag and time of the last change of a remote source; None where its store states neither."""
    try:
        files, path = open_store(source)
        files.invalidate_cache(path)
        stated = try_again(lambda: files.info(path))
    except Exception:  # noqa: BLE001 - stores raise errors of their own; opening the source reports them
        return None
    marks = tuple(str(stated[mark]) for mark in _MARKS if stated.get(mark))
    return (stated.get("size"), *marks) if marks else None


def version_anywhere(source: str, version: Hashable | None) -> Hashable | None:
    """Return the part of a source's version that every node sees alike: of a local one its bytes and whole seconds."""
    if is_local(source) and isinstance(version, tuple):
        *_, size_bytes, changed_ns = version
        return size_bytes, changed_ns // 10**9
    return version


def changed_meanwhile(source: str) -> InputUnreadable:
    """Return the error for a source that is not what it was when the job began."""
    message = f"{source} was changed or removed while it was read"
    return InputUnreadable(message, "Start again once nothing writes to it any more.")
