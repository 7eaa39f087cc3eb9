"""A web server for the source of a round, which delays, cuts and refuses answers on request."""

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

DELAY_S: Final = 0.15
CUT_EVERY: Final = 3
CUTS_MOST: Final = 2
"""Readers in step could have the same one of them cut each time; a read is tried five times."""


class Mood(Enum):
    """How the server answers."""

    GOOD = auto()  #: as asked
    SLOW = auto()  #: late; every third answer ends in the middle, but at most CUTS_MOST times for a range
    DOWN = auto()  #: 503


class ShakyServer(ThreadingHTTPServer):
    """Serves one file under any path."""

    daemon_threads = True

    def __init__(self, film: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = film.read_bytes()
        self.mood = Mood.GOOD
        self.numbers = itertools.count(1)
        self.cuts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/film.mp4"

    def be_down(self, for_s: float) -> None:
        """Refuse all requests for a time."""
        self.mood = Mood.DOWN
        threading.Timer(for_s, self._recover).start()

    def _recover(self) -> None:
        self.mood = Mood.GOOD

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing about clients that are gone, because they were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ShakyServer

    def do_HEAD(self) -> None:
        self._answer(is_get=False)

    def do_GET(self) -> None:
        self._answer(is_get=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Say nothing."""

    def _answer(self, *, is_get: bool) -> None:
        mood, number = self.server.mood, next(self.server.numbers)
        if mood is Mood.DOWN:
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if mood is Mood.SLOW:
            time.sleep(DELAY_S)
        body = self._head()
        if is_get:
            asked = self.headers.get("Range", "")
            is_cut = mood is Mood.SLOW and number % CUT_EVERY == 0 and self.server.cuts[asked] < CUTS_MOST
            self.server.cuts[asked] += is_cut
            self.wfile.write(body[: len(body) // 2] if is_cut else body)
            self.close_connection = self.close_connection or is_cut

    def _head(self) -> bytes:
        content = self.server.content
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = 0, len(content) - 1
        if asked is not None:
            first, last = int(asked[1]), min(last, int(asked[2] or last))
        self.send_response(HTTPStatus.OK if asked is None else HTTPStatus.PARTIAL_CONTENT)
        if asked is not None:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"film"')
        self.end_headers()
        return content[first : last + 1]


@contextmanager
def shaky_server(film: Path) -> Iterator[ShakyServer]:
    """Yield a running server."""
    with ShakyServer(film) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            with suppress(RuntimeError):
                serving.join(timeout=5)
