"""A cloud's metadata server: ``python -m tests.metadata_server ADDRESS PORT``; each line on stdin is an order."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GIVEN = "AQAEAJ-token=="
AWS, GCP = "/latest/meta-data/", "/computeMetadata/v1/instance/"
ACTION, REBALANCE = f"{AWS}spot/instance-action", f"{AWS}events/recommendations/rebalance"


@dataclass
class FakeMetadata:
    """What the server answers, and what it was asked. It has the manners of EC2, or with ``is_gcp`` those of Google."""

    is_gcp: bool = False
    values: dict[str, str] = field(default_factory=dict)  # the values by path; other paths do not exist
    ahead_s: float = 0.0  # how far the server's clock is ahead
    token_status: int = 200
    hangs: threading.Event | None = None  # no answer before this is set
    asked: list[str] = field(default_factory=list)
    port: int = 0

    def announce(self, left_s: float, action: str = "terminate") -> None:
        """Announce the end of an EC2 instance."""
        ends = self.now() + timedelta(seconds=left_s)
        self.values[ACTION] = f'{{"action": "{action}", "time": "{ends:%Y-%m-%dT%H:%M:%SZ}"}}'

    def now(self) -> datetime:
        """Return the time by the server's clock."""
        return datetime.now(UTC) + timedelta(seconds=self.ahead_s)

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return status and body."""
        self.asked.append(f"{method} {path}")
        if self.hangs is not None:
            self.hangs.wait()
        if self.is_gcp:
            is_allowed = headers.get("metadata-flavor") == "Google"
        elif path == "/latest/api/token":
            seconds = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            return (self.token_status, GIVEN) if method == "PUT" and seconds.isdigit() else (405, "")
        else:
            is_allowed = headers.get("x-aws-ec2-metadata-token") == GIVEN
        if not is_allowed:
            return (403 if self.is_gcp else 401), ""
        return (200, self.values[path]) if method == "GET" and path in self.values else (404, "not found")


@contextmanager
def metadata_server(fake: FakeMetadata, address: str = "127.0.0.1", port: int = 0) -> Iterator[FakeMetadata]:
    """Serve; the port is in ``fake.port``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

        def _serve(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text = fake.answer(self.command, self.path, headers)
            body = text.encode()
            self.send_response_only(status)
            self.send_header("Date", format_datetime(fake.now(), usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            if fake.is_gcp:
                self.send_header("Metadata-Flavor", "Google")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _serve  # noqa: N815 - the names that BaseHTTPRequestHandler calls

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield fake
    finally:
        if fake.hangs is not None:
            fake.hangs.set()
        server.shutdown()
        serving.join()
        server.server_close()


def _serve_orders() -> None:
    """Serve as EC2; the order ``announce SECONDS`` announces the machine's end, ``withdraw`` takes that back."""
    with metadata_server(FakeMetadata(), sys.argv[1], int(sys.argv[2])) as fake:
        sys.stdout.write("up\n")
        sys.stdout.flush()
        for line in sys.stdin:
            order, *left_s = line.split()
            if order == "announce":
                fake.announce(float(left_s[0]))
            else:
                fake.values.clear()


if __name__ == "__main__":
    _serve_orders()
