"""A real S3 server in a separate process, behind a proxy that counts what is read and makes trouble."""

import http.client
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any, Final

import fsspec
import pytest

_START_S: Final = 60
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})
_ERROR: Final = "<?xml version='1.0'?><Error><Code>{}</Code><Message>injected</Message></Error>"


class Trouble(Enum):
    """How one request fails."""

    NONE = auto()
    ERROR_500 = auto()
    SLOW_DOWN = auto()  #: 503
    RESET = auto()  #: the connection is closed without an answer
    TRUNCATED = auto()  #: the body ends in the middle, although the header promises all of it
    SILENT = auto()  #: no answer for as long as the client waits


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came."""

    method: str
    path: str
    sent_bytes: int
    """How many bytes of an object's content were sent."""


class S3Proxy(ThreadingHTTPServer):
    """Passes requests on to the server, except those that ``trouble`` chooses."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server_port_behind = port
        self.lock = threading.Lock()
        self.end_of_silence = threading.Event()
        self.start_over()

    def start_over(self) -> None:
        """Forget all requests, and stop making trouble."""
        self.requests: list[Request] = []
        self.trouble: Callable[[str, str], Trouble] = lambda _method, _path: Trouble.NONE

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this the S3 of this process."""
        names = {"ENDPOINT_URL": self.url, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "hidden-value"}
        for name, value in (names | {"DEFAULT_REGION": "us-east-1"}).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()

    def sent_bytes(self, path: str) -> int:
        """Return how many bytes of an object were sent."""
        return sum(each.sent_bytes for each in self.requests if each.path.partition("?")[0] == path)

    def uploads(self, bucket: str) -> str:
        """Return the server's list of unfinished uploads."""
        address = f"http://127.0.0.1:{self.server_port_behind}/{bucket}?uploads"
        with urllib.request.urlopen(address) as answer:
            return str(answer.read().decode())

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have disconnected."""


def in_turn(troubles: list[Trouble], *, method: str = "GET") -> Callable[[str, str], Trouble]:
    """Return a function that applies these troubles to requests of one method, one after the other."""
    left = deque(troubles)

    def pick(asked: str, path: str) -> Trouble:
        return left.popleft() if asked == method and left and path.count("/") > 1 else Trouble.NONE

    return pick


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            trouble = self.server.trouble(self.command, self.path)
        if trouble is Trouble.RESET:
            self.close_connection = True
        elif trouble is Trouble.SILENT:
            self.server.end_of_silence.wait(60)
            self.close_connection = True
        elif trouble is Trouble.ERROR_500:
            self._send(500, [], _ERROR.format("InternalError").encode())
        elif trouble is Trouble.SLOW_DOWN:
            self._send(503, [], _ERROR.format("SlowDown").encode())
        else:
            self._pass_on(body, is_cut=trouble is Trouble.TRUNCATED)

    def __getattr__(self, name: str) -> Any:
        """Answer every method alike."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _pass_on(self, body: bytes, *, is_cut: bool) -> None:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.server_port_behind)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            behind.request(self.command, self.path, body, headers)
            answer = behind.getresponse()
            content = answer.read()
        finally:
            behind.close()
        self._send(answer.status, answer.getheaders(), content, is_cut=is_cut)

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, *, is_cut: bool = False) -> None:
        sent = content[: len(content) // 2] if is_cut else content
        sent = b"" if self.command == "HEAD" else sent
        is_content = self.command == "GET" and status in (200, 206)
        with self.server.lock:
            self.server.requests.append(Request(self.command, self.path, len(sent) if is_content else 0))
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = self.close_connection or is_cut


@contextmanager
def s3_server() -> Iterator[S3Proxy]:
    """Yield a proxy before a new, empty server; skip without the packages, which are imported only here."""
    pytest.importorskip("s3fs")
    if find_spec("moto") is None:
        pytest.skip("moto is not installed")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **quiet) as process:
        try:
            with S3Proxy(_port(process)) as proxy:
                serving = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
                serving.start()
                yield proxy
                proxy.end_of_silence.set()
                proxy.shutdown()
                serving.join(timeout=5)
        finally:
            process.terminate()


def _port(process: "subprocess.Popen[str]") -> int:
    """Return the port on which the server says it listens."""
    assert process.stderr is not None
    until = time.monotonic() + _START_S
    for line in process.stderr:
        if "Running on http://127.0.0.1:" in line:
            threading.Thread(target=_drain, args=[process.stderr], daemon=True).start()
            return int(line.rpartition(":")[2])
        assert time.monotonic() < until
    message = "moto's server did not start"
    raise RuntimeError(message)


def _drain(lines: Any) -> None:
    with suppress(ValueError):
        for _ in lines:
            pass


@pytest.fixture(scope="module")
def server() -> Iterator[S3Proxy]:
    """A server for all tests in a module."""
    with s3_server() as proxy:
        yield proxy
