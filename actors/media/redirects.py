"""Where a web server may send its readers: not to addresses that only this machine or its network can reach.

Such a redirect would let whoever names a source, or serves it, read a cloud's metadata service or an internal server.
A source on the own network may lead on within it; link-local addresses are for link-local sources alone.
"""

import asyncio
import ipaddress
import socket
from functools import cache
from typing import TYPE_CHECKING, Final

from ...errors import InputRefused

if TYPE_CHECKING:
    from aiohttp import ClientSession, TraceConfig, TraceRequestRedirectParams
    from yarl import URL

_PORT: Final = 80
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def leads_inside(source: Address, target: Address) -> bool:
    """Return whether a redirect from one address to another leads where its first server may not reach."""
    if target.is_link_local:
        return not source.is_link_local
    return source.is_global and not target.is_global


@cache
def guarded_redirects() -> "TraceConfig":
    """Return the hook with which aiohttp checks each redirect before it follows it."""
    from aiohttp import TraceConfig

    hook = TraceConfig()
    hook.on_request_redirect.append(_check)
    return hook


async def _check(session: "ClientSession", context: object, sent: "TraceRequestRedirectParams") -> None:
    del session, context
    location = sent.response.headers.get("Location") or sent.response.headers.get("URI")
    if not location:
        return
    target = sent.url.join(type(sent.url)(location))
    sources, targets = await _addresses(sent.url), await _addresses(target)
    if any(leads_inside(source, each) for source in sources for each in targets):
        message = f"{sent.url.host} redirects to {target.host}, an address inside this network"
        raise InputRefused(message, "Name that address itself, if you trust it.")


async def _addresses(url: "URL") -> list[Address]:
    """Return the addresses of a URL's host; none where it has no name that is known."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port or _PORT, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [_plain(ipaddress.ip_address(str(each[4][0]).partition("%")[0])) for each in found]


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
