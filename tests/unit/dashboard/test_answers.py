"""Answers to requests: the page, the data, and refusals."""

import re
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.dashboard.answers import (
    DATA_PATH,
    BadRequest,
    Gate,
    WebAnswer,
    WebRequest,
    answer_to,
    load_page,
    names_this_machine,
    parsed,
    refusal,
)

OPEN = Gate()
CLOSED = Gate("s3cret-token")
HERE = "127.0.0.1:8266"


def asked(gate: Gate, path: str = DATA_PATH, *, method: str = "GET", **headers: str) -> WebAnswer:
    """Return the answer to a request with these headers."""
    return answer_to(WebRequest(method, path, headers), gate, load_page())


@pytest.mark.parametrize("host", ["127.0.0.1:8266", "localhost:9", "LOCALHOST", "[::1]:8266", "[::1]", "127.1.2.3"])
def test_this_machine_is_answered_under_its_names(host: str) -> None:
    """Without a token, a request that names a loopback address or localhost is answered, on any port."""
    assert names_this_machine(host)
    assert asked(OPEN, host=host).wants_data
    assert asked(OPEN, "/", host=host).body == load_page().html


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8266", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1:8266", ":80"],
)
@pytest.mark.parametrize("path", ["/", DATA_PATH])
def test_other_names_are_refused(host: str, path: str) -> None:
    """A request under another name that resolves to 127.0.0.1 gets neither the page nor the data."""
    assert not names_this_machine(host)
    assert asked(OPEN, path, host=host).status is HTTPStatus.MISDIRECTED_REQUEST
    assert asked(OPEN, path).status is HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", "Bearer wrong", "Basic s3cret-token", "s3cret-token", "Bearer s3cret-tokeñ"],
)
def test_without_the_token_there_is_no_data(shown: str) -> None:
    """A missing or wrong token is refused whatever the host is called; the page itself needs no token."""
    answer = asked(CLOSED, host=HERE, authorization=shown)
    assert answer.status is HTTPStatus.UNAUTHORIZED
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert not answer.wants_data
    assert asked(CLOSED, "/", host="fleet.example").status is HTTPStatus.OK
    assert asked(CLOSED, f"{DATA_PATH}?token=s3cret-token", host=HERE).status is not HTTPStatus.OK


@pytest.mark.parametrize("shown", ["Bearer s3cret-token", "bearer  s3cret-token "])
def test_the_token_opens(shown: str) -> None:
    """A request with the token gets the data, whatever its Host header."""
    assert asked(CLOSED, host="fleet.example", authorization=shown).wants_data


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_it_is_only_read(method: str) -> None:
    """Every method except GET and HEAD is refused, for any path."""
    answer = asked(OPEN, "/anything", method=method, host=HERE)
    assert (answer.status, answer.headers["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD")


@pytest.mark.parametrize("path", ["/favicon.ico", "/../etc/passwd", "/fleet.json/", "//"])
def test_there_is_nothing_else(path: str) -> None:
    """No path leads to a file."""
    assert asked(OPEN, path, host=HERE).status is HTTPStatus.NOT_FOUND


def test_every_answer_is_kept_from_frames_caches_and_guesses() -> None:
    """The page, the data and refusals all have the protective headers."""
    safe = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
    for answer in (asked(OPEN, "/", host=HERE), asked(OPEN, host=HERE), asked(OPEN), refusal(HTTPStatus.BAD_REQUEST)):
        assert safe.items() <= answer.headers.items()
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_the_page_loads_nothing_and_writes_no_markup() -> None:
    """The policy allows the page's own style and script by hash; neither makes elements from text."""
    page = load_page()
    text = page.html.decode()
    assert page.policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in page.policy
    assert len(re.findall(r"<(?:style|script)\b", text)) == 2
    assert set(re.findall(r"\b(?:src|href)=\"([^\"]*)\"", text)) == {"data:,"}
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style=", "onclick", "onload"):
        assert word not in text


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /",
        b"GET / HTTP/2",
        b"GET http://evil/ HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1\r\nno colon",
        b"GET / HTTP/1.1\r\nHost : a",
        b"GET / HTTP/1.1\r\n folded: a",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_other_bytes_are_refused(head: bytes) -> None:
    """A head that two readers could understand differently is refused."""
    whole = parsed(b"GET /fleet.json?a=b HTTP/1.1\r\nHost: localhost:1\r\nAuthorization:Bearer x\r\n")
    assert whole == WebRequest("GET", "/fleet.json", {"host": "localhost:1", "authorization": "Bearer x"})
    with pytest.raises(BadRequest):
        parsed(head)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_none(head: bytes) -> None:
    """Any bytes are answered or refused."""
    try:
        found = parsed(head)
    except BadRequest:
        return
    assert answer_to(found, CLOSED, load_page()).status in set(HTTPStatus)
    assert answer_to(found, OPEN, load_page()).status in set(HTTPStatus)
