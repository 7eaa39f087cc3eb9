"""Opens stores through fsspec; finds the version of a source, and the address at which this machine reads it."""

import hashlib
import ipaddress
import socket
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...errors import InputRefused, InputUnreadable
from .location import HeldSource, is_local, local_path, split_protocol
from .storage_retry import try_again

if TYPE_CHECKING:
    from aiohttp import ClientSession, TraceConfig, TraceRequestRedirectParams
    from yarl import URL

S3_ATTEMPTS: Final = 4
"""How many times botocore tries a request. Uploads of parts need the pauses between the attempts: 4 s in total on
average.
"""
HTTP_SILENCE_S: Final = 8
"""How long a web server may be silent; fsspec makes two attempts."""
S3_SILENCE_S: Final = 10
_MARKS: Final = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "updated", "created")
"""The stores' names for a file's content tag, or the time of its last change."""
MARK_PLACES: Final = 16
"""At how many places two machines compare the content of a file."""
_PLACE_BYTES: Final = 4096
_MARKS_KEPT: Final = 64
_WEB_PORT: Final = 80
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def open_store(url: str) -> tuple[Any, str]:
    """Return fsspec's store of a ``url``, and the path in that store. Raises errors of the store and of fsspec."""
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url, **_options(url))
    if _is_s3(url):
        # Otherwise s3fs would send each request five times, with the full timeout each time.
        files.retries = 1
    return files, path


def _options(url: str) -> dict[str, Any]:
    if _is_s3(url):
        # One part at a time: a part still being sent when an upload is aborted can outlive the upload.
        return {"config_kwargs": _s3_config(), "max_concurrency": 1}
    return _web_options() if split_protocol(url)[0] in ("http", "https") else {}


def _is_s3(url: str) -> bool:
    return split_protocol(url)[0] in ("s3", "s3a")


def _s3_config() -> dict[str, Any]:
    """Return the configuration for botocore; the user's fsspec configuration takes precedence."""
    from fsspec.config import conf

    own = {
        "retries": {"mode": "standard", "total_max_attempts": S3_ATTEMPTS},
        "connect_timeout": S3_SILENCE_S,
        "read_timeout": S3_SILENCE_S,
    }
    stated: Mapping[str, Any] = conf.get("s3", {}).get("config_kwargs", {})
    return own | dict(stated)


def _web_options() -> dict[str, Any]:
    """Return the options for aiohttp; the user's fsspec configuration of https takes precedence."""
    from fsspec.config import conf

    try:
        import aiohttp  # aiohttp is installed only with fsspec's web support
    except ImportError:
        return {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_SILENCE_S, sock_read=HTTP_SILENCE_S)
    stated: Mapping[str, Any] = conf.get("https", {}).get("client_kwargs", {})
    return {"client_kwargs": {"timeout": timeout, "trace_configs": [guarded_redirects()]} | dict(stated)}


def leads_inside(source: Address, target: Address) -> bool:
    """Return whether a redirect leads into this machine's network, for example to a metadata service.

    A source on a private network may redirect within that network; only a link-local source may redirect to a
    link-local address.
    """
    if target.is_link_local:
        return not source.is_link_local
    return source.is_global and not target.is_global


@cache
def guarded_redirects() -> "TraceConfig":
    """Return the hook that checks each redirect before aiohttp follows it."""
    from aiohttp import TraceConfig

    hook = TraceConfig()
    hook.on_request_redirect.append(_check)
    return hook


async def _check(session: "ClientSession", context: object, sent: "TraceRequestRedirectParams") -> None:
    del session, context
    place = sent.response.headers.get("Location") or sent.response.headers.get("URI")
    if not place:
        return
    target = sent.url.join(type(sent.url)(place))
    sources, targets = await _addresses(sent.url), await _addresses(target)
    if any(leads_inside(source, each) for source in sources for each in targets):
        message = f"{sent.url.host} redirects to {target.host}, an address inside this network"
        raise InputRefused(message, "If you trust that address, use it directly.")


async def _addresses(url: "URL") -> list[Address]:
    """Return the addresses of a URL's host; empty if the host's name is unknown."""
    import asyncio  # planning a local file does not need aiohttp

    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port or _WEB_PORT, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [_plain(ipaddress.ip_address(str(each[4][0]).partition("%")[0])) for each in found]


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def local_version(source: str) -> tuple[int, ...] | None:
    """Return the device, inode, size and last change of a local source; None if there is no file."""
    if isinstance(source, HeldSource):
        return source.version
    try:
        found = local_path(source).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def source_version(source: str) -> Hashable | None:
    """Return a value that changes whenever a source does; None if the source is missing or has no version."""
    return local_version(source) if is_local(source) else remote_version(source)


def remote_version(source: str) -> tuple[int | None, *tuple[str, ...]] | None:
    """Return the size, tag and last change of a remote source; None if its store states no tag or change."""
    return remote_state(source)[0]


def remote_state(source: str) -> tuple[tuple[int | None, *tuple[str, ...]] | None, int | None]:
    """Return the ``remote_version`` of a remote source and its size in bytes; None for a value that is not stated."""
    stated = _stated(source)
    marks = tuple(str(stated[mark]) for mark in _MARKS if stated.get(mark))
    size = stated.get("size")
    return (size, *marks) if marks else None, size if isinstance(size, int) else None


def _stated(source: str) -> Mapping[str, Any]:
    """Return a store's information about a remote source; {} if the store does not answer."""
    try:
        files, path = open_store(source)
        files.invalidate_cache(path)
        found: Mapping[str, Any] = try_again(lambda: files.info(path))
    except Exception:  # noqa: BLE001 - every store has its own errors; opening the source reports them
        return {}
    return found


def version_anywhere(source: str, version: Hashable | None) -> Hashable | None:
    """Return the part of a version that every node agrees on.

    This is the size and the change time in seconds of a local source, and the whole version of any other source.
    """
    if is_local(source) and isinstance(version, tuple):
        *_, size_bytes, changed_ns = version
        return size_bytes, changed_ns // 10**9
    return version


def changed_meanwhile(source: str) -> InputUnreadable:
    """Return the error for a source that has changed since the job began."""
    message = f"{source} was changed or removed while it was read"
    return InputUnreadable(message, "Start again when no program writes to the source any more.")


@dataclass(frozen=True, slots=True)
class Shipment(ABC):
    """How any machine reads a source that is on another machine."""

    url: str  # in fsspec's form
    version: Hashable  # the ``source_version`` that the source must have
    mark: str  # the ``content_mark`` of a file that may be read instead

    @abstractmethod
    def prepare(self) -> None:
        """Register the protocol of ``url`` with fsspec. Idempotent."""


def place_of(source: str, expected: Hashable | None, shipment: Shipment | None) -> tuple[str, Hashable | None]:
    """Return the address at which this machine reads a source, and the version there (None if unknown).

    ``expected`` is the ``version_anywhere`` that the source must have; None accepts any version. A source on this
    machine is not shipped. ``InputUnreadable`` if the version there is not the expected one.
    """
    version = source_version(source)
    if shipment is not None and is_local(source) and not _is_here(source, expected, version, shipment.mark):
        shipment.prepare()
        source, expected = shipment.url, shipment.version
        version = source_version(source)
    if expected is not None and version is not None and version_anywhere(source, version) != expected:
        raise changed_meanwhile(source)
    return source, version


def _is_here(source: str, expected: Hashable | None, version: Hashable | None, mark: str) -> bool:
    """Return whether this machine's file of the same name is the source, by its size, time and ``content_mark``."""
    if version is None or version_anywhere(source, version) != expected:
        return False
    try:
        return _known_mark(source, version) == mark
    except OSError:  # this user cannot read the file
        return False


@lru_cache(_MARKS_KEPT)  # called for each segment
def _known_mark(source: str, version: Hashable) -> str:
    del version
    return content_mark(source)


def content_mark(source: str) -> str:
    """Return a digest of bytes from ``MARK_PLACES`` places of a file: files of equal size and time may differ."""
    digest = hashlib.blake2b(digest_size=16)
    with local_path(source).open("rb") as file:
        last = max(0, file.seek(0, 2) - _PLACE_BYTES)
        for number in range(MARK_PLACES):
            file.seek(last * number // (MARK_PLACES - 1))
            digest.update(file.read(_PLACE_BYTES))
    return digest.hexdigest()


def shipped_version(source: str) -> tuple[int, str] | None:
    """Return a local file's size and version, as a store would state them; None if there is no file."""
    found = local_version(source)
    return None if found is None else (found[2], ".".join(map(str, found)))
