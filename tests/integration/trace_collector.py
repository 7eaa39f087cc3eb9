"""A local trace collector that receives OTLP over HTTP and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A received span, with ids in hexadecimal and "" for no parent."""

    trace: str
    span: str
    parent: str
    name: str
    service: str
    attributes: dict[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> Any:
        """Return one of our attributes."""
        return self.attributes.get(f"codecfleet.{name}")


class _Handler(BaseHTTPRequestHandler):
    spans: ClassVar[list[Seen]]

    def do_POST(self) -> None:
        """Keep what arrives."""
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for part in request.resource_spans:
            service = _plain(part.resource.attributes)["service.name"]
            self.spans += [_seen(each, service) for scope in part.scope_spans for each in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def _seen(each: Any, service: str) -> Seen:
    ids = (each.trace_id.hex(), each.span_id.hex(), each.parent_span_id.hex())
    return Seen(*ids, each.name, service, _plain(each.attributes))


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collector() -> Iterator[tuple[str, list[Seen]]]:
    """Yield a collector's address, and the list of spans it has received."""
    spans: list[Seen] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"spans": spans}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
