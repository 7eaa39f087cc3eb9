"""The dashboard's answers to requests, and the rules of access, without I/O.

The page is one self-contained file. Its content security policy keeps browsers from loading or running anything else.
"""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Final

DATA_PATH: Final = "/fleet.json"
_INLINE: Final = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)
_READS: Final = ("GET", "HEAD")
_TEXT: Final = "text/plain; charset=utf-8"
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The bytes of the page, and its Content-Security-Policy."""

    html: bytes
    policy: str


@cache
def load_page() -> Page:
    """Return the page; its policy allows only the page's own style and script, by their hashes."""
    html = files(__package__).joinpath("page.html").read_bytes()
    hashes = {
        kind.decode(): f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"
        for kind, content in _INLINE.findall(html)
    }
    rules = [
        "default-src 'none'",
        f"style-src {hashes['style']}",
        f"script-src {hashes['script']}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return Page(html, "; ".join(rules))


class BadRequest(Exception):
    """The received bytes are not an HTTP/1 request."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """The request line and the headers of a request. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer to a request; if ``wants_data``, the body is the newest snapshot of the fleet."""

    status: HTTPStatus
    headers: Mapping[str, str]
    body: bytes = b""
    wants_data: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """Admits requests that have the ``token`` or, if no token is set, requests whose ``Host`` names this machine.

    The check of ``Host`` prevents DNS rebinding: if the name of a foreign site resolves to 127.0.0.1, its requests
    still have that name as ``Host``.
    """

    token: str = ""

    def refuses(self, request: WebRequest) -> HTTPStatus | None:
        """Return the status of a refusal, or None if a request is admitted."""
        if not self.token:
            return None if names_this_machine(request.headers.get("host", "")) else HTTPStatus.MISDIRECTED_REQUEST
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("latin-1", "replace"), self.token.encode())
        return None if scheme.lower() == "bearer" and is_right else HTTPStatus.UNAUTHORIZED


def names_this_machine(host: str) -> bool:
    """Return whether a ``Host`` header is a loopback address or ``localhost``, with any port."""
    before, colon, port = host.rpartition(":")
    name = before if colon and port.isdecimal() else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def parsed(head: bytes) -> WebRequest:
    """Parse the head of an HTTP/1 request, up to the empty line. Raises BadRequest if the head is invalid."""
    line, *rest = head.decode("latin-1").split("\r\n")
    method, _, target = line.partition(" ")
    path, _, version = target.partition(" ")
    if not version.startswith("HTTP/1.") or " " in version or not path.startswith("/"):
        raise BadRequest(line)
    fields = [each.partition(":") for each in rest if each]
    headers = {name.lower(): value.strip() for name, _, value in fields}
    if any(not colon or name != name.strip() for name, colon, _ in fields) or len(headers) != len(fields):
        raise BadRequest(line)
    return WebRequest(method, path.partition("?")[0], headers)


def answer_to(request: WebRequest, gate: Gate, page: Page) -> WebAnswer:
    """Return the answer to a request. The page itself needs no token, because it contains nothing about the fleet."""
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
    """Return an answer whose body is only the status, as text."""
    text = f"{status.value} {status.phrase}\n".encode()
    return WebAnswer(status, {**_SAFE, "Content-Type": _TEXT, **(headers or {})}, text)


def packed(answer: WebAnswer, *, with_body: bool) -> bytes:
    """Return an answer as HTTP/1.1 bytes, after which the connection closes; the answer to HEAD has no body."""
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {len(answer.body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + answer.body * with_body
