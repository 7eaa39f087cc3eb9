"""What the dashboard answers to each request: a pure function, with the rules about who may see what."""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from .page import Page

DATA_PATH: Final = "/fleet.json"
_READS: Final = ("GET", "HEAD")
_TEXT: Final = "text/plain; charset=utf-8"
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class BadRequest(Exception):
    """These bytes are not a request of HTTP/1."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request's line and its headers, whose names are in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer; ``wants_data``: its body is the fleet as it is when it is sent."""

    status: HTTPStatus
    headers: Mapping[str, str]
    body: bytes = b""
    wants_data: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """Who may see the fleet: who has the ``token``; "" lets in who names this machine in the header ``Host``.

    A page of elsewhere that calls itself by a name of its own for 127.0.0.1 (DNS rebinding) names that.
    """

    token: str = ""

    def refuses(self, request: WebRequest) -> HTTPStatus | None:
        """Return why a request is refused, None where it is not."""
        if not self.token:
            return None if names_this_machine(request.headers.get("host", "")) else HTTPStatus.MISDIRECTED_REQUEST
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("latin-1", "replace"), self.token.encode())
        return None if scheme.lower() == "bearer" and is_right else HTTPStatus.UNAUTHORIZED


def names_this_machine(host: str) -> bool:
    """Return whether a ``Host`` header is a loopback address or ``localhost``, on any port: it may be forwarded."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and host.rpartition(":")[1] else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def parsed(head: bytes) -> WebRequest:
    """Return the request that a head of HTTP/1 makes, up to the empty line.

    Raises:
        BadRequest: it makes none.
    """
    line, *rest = head.decode("latin-1").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):  # noqa: PLR2004
        raise BadRequest(line)
    fields = [each.partition(":") for each in rest if each]
    headers = {name.lower(): value.strip() for name, _, value in fields}
    if any(not colon or name != name.strip() for name, colon, _ in fields) or len(headers) != len(fields):
        raise BadRequest(line)
    return WebRequest(parts[0], parts[1].partition("?")[0], headers)


def answer_to(request: WebRequest, gate: Gate, page: Page) -> WebAnswer:
    """Return the answer; the page itself says nothing of the fleet, so it needs no token."""
    if request.method not in _READS:
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ", ".join(_READS)})
    refused = gate.refuses(request)
    if refused is HTTPStatus.MISDIRECTED_REQUEST:
        return refusal(refused)
    if request.path == "/":
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": page.policy}
        return WebAnswer(HTTPStatus.OK, _SAFE | headers, page.html)
    if request.path != DATA_PATH:
        return refusal(HTTPStatus.NOT_FOUND)
    if refused is not None:
        return refusal(refused, {"WWW-Authenticate": 'Bearer realm="codecfleet"'})
    return WebAnswer(HTTPStatus.OK, _SAFE | {"Content-Type": "application/json"}, wants_data=True)


def refusal(status: HTTPStatus, headers: Mapping[str, str] | None = None) -> WebAnswer:
    """Return an answer that says only why there is none."""
    text = f"{status.value} {status.phrase}\n".encode()
    return WebAnswer(status, {**_SAFE, "Content-Type": _TEXT, **(headers or {})}, text)


def packed(answer: WebAnswer, *, with_body: bool) -> bytes:
    """Return an answer as HTTP/1.1, after which the connection ends; without body for HEAD."""
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {len(answer.body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + answer.body * with_body
