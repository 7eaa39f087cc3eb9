"""Spans of OpenTelemetry, which is imported only if the environment names a collector (docs/logs.md).

The parent of a span is given as a W3C traceparent, plain text that is sent with work like any other value.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import CodecfleetError, one_line

if TYPE_CHECKING:
    from opentelemetry.trace import Span as RecordedSpan
    from opentelemetry.trace import Tracer

Value: TypeAlias = str | int | float | bool

PARENT: Final = "TRACEPARENT"
"""The variable that tells a program which span it belongs to."""
_TRACEPARENT: Final = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_COLLECTORS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP: Final = "otlp"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_OFTEN_MS: Final = 200
"""The interval at which spans are sent: short, because a worker may end soon after its last work."""
_EXPORTER: Final = "opentelemetry-exporter-otlp-proto-http"
_PREFIX: Final = "codecfleet."


def names_collector(environment: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's own variables ask for OTLP, by its name or only by a collector's address."""
    named = _exporters(environment)
    return _OTLP in named if named else not _is_off(environment) and any(environment.get(each) for each in _COLLECTORS)


def unserved(environment: Mapping[str, str]) -> list[str]:
    """Return a line of text for each part of OpenTelemetry's variables that is not obeyed, with the reason."""
    named = _exporters(environment)
    others = [each for each in dict.fromkeys(named) if each not in (_OTLP, "none")]
    protocol = next((asked for each in _PROTOCOLS if (asked := environment.get(each, "").strip())), _PROTOCOL)
    sends, lines = is_traced(environment), []
    if others:
        lines.append(f"OTEL_TRACES_EXPORTER asks for {', '.join(others)}: traces are sent as {_OTLP} only")
    if sends and protocol != _PROTOCOL:
        lines.append(f"traces are sent as {_PROTOCOL}, not as {protocol}: the collector must accept {_PROTOCOL}")
    if sends and isinstance(trouble := _begun(), str) and trouble:
        lines.append(f"no traces are sent: {trouble}")
    if _OTLP in named and not sends:
        lines.append("OTEL_TRACES_EXPORTER asks for traces: to send them, pip install 'codecfleet[otel]'")
    return lines


def _exporters(environment: Mapping[str, str]) -> list[str]:
    named = environment.get("OTEL_TRACES_EXPORTER", "")
    return [] if _is_off(environment) else [name for each in named.lower().split(",") if (name := each.strip())]


def _is_off(environment: Mapping[str, str]) -> bool:
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def caller(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable that tells another program this program's span; {} if there is no span."""
    parent = environment.get(PARENT, "")
    return {PARENT: parent} if _TRACEPARENT.fullmatch(parent) else {}


def is_traced(environment: Mapping[str, str]) -> bool:
    """Return whether spans are sent: they must be requested, and the package that sends them must be installed."""
    if not names_collector(environment):
        return False
    from importlib.metadata import PackageNotFoundError, version

    try:
        return bool(version(_EXPORTER))
    except PackageNotFoundError:
        return False


class TraceSpan:
    """A span, or nothing if tracing is off. Pass its ``traceparent`` ("" if off) to begin a child of the span."""

    def __init__(self, recorded: "RecordedSpan | None" = None, traceparent: str = "") -> None:
        self._recorded = recorded
        self.traceparent = traceparent

    def note(self, **attributes: Value) -> None:
        """Add attributes under names with the prefix ``codecfleet.``; strings are redacted, empty values left out."""
        if self._recorded is not None:
            self._recorded.set_attributes(_named(attributes))

    def end(self, error: BaseException | None = None) -> None:
        """End the span; ``error`` is the error that ended the work, if any."""
        if self._recorded is None:
            return
        self.note(outcome=_outcome(error))
        if isinstance(error, Exception):
            from opentelemetry.trace import Status, StatusCode

            self._recorded.set_status(Status(StatusCode.ERROR, one_line(str(error))))
        self._recorded.end()


NO_SPAN: Final = TraceSpan()


class Tracing:
    """Begins spans with an OpenTelemetry tracer; ``send`` sends the spans that have ended."""

    def __init__(self, tracer: "Tracer", send: Callable[[], object] = bool) -> None:
        self._tracer = tracer
        self.send = send

    def begin(self, name: str, parent: str, attributes: Mapping[str, Value]) -> TraceSpan:
        """Begin a span below ``parent``, a traceparent; "" begins a trace."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = TraceContextTextMapPropagator()
        above = carrier.extract({"traceparent": parent}, _nothing())
        recorded = self._tracer.start_span(name, above, attributes=_named(attributes))
        context = recorded.get_span_context()
        traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        return TraceSpan(recorded, traceparent)


def tracing() -> Tracing | None:
    """Return this process's tracing; None if no tracing is wanted, or OpenTelemetry does not start."""
    begun = _begun()
    return begun if isinstance(begun, Tracing) else None


@cache
def _begun() -> Tracing | str:
    """Return this process's tracing, or the reason for its absence; "" if no tracing is wanted."""
    try:
        return _opened() if is_traced(os.environ) else ""
    except Exception as error:  # noqa: BLE001 - OpenTelemetry may raise any error, which must not fail work
        return one_line(f"{type(error).__name__}: {error}")


@contextmanager
def span(name: str, parent: str, **attributes: Value) -> Iterator[TraceSpan]:
    """Open a span around the block, below ``parent``, if spans are wanted."""
    if (found := tracing()) is None:
        yield NO_SPAN
        return
    begun = found.begin(name, parent, attributes)
    try:
        yield begun
    except BaseException as error:  # the span records how the block ended
        begun.end(error)
        raise
    begun.end()


def send_spans(limit_s: float) -> None:
    """Send the ended spans within ``limit_s``: an unreachable collector must not delay anything."""
    if (found := tracing()) is not None:
        sending = threading.Thread(target=found.send, name="codecfleet-spans", daemon=True)
        sending.start()
        sending.join(limit_s)


def _opened() -> Tracing:
    # These are imported late because OpenTelemetry takes a fraction of a second to load.
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):  # the program has set no provider
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # keep messages off the progress display
        described = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in described
        resource = Resource.create({} if is_named else {"service.name": "codecfleet"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        often_ms = None if "OTEL_BSP_SCHEDULE_DELAY" in os.environ else _OFTEN_MS
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=often_ms))
    return Tracing(provider.get_tracer("codecfleet"), provider.force_flush)


def _nothing() -> Any:  # noqa: ANN401 - OpenTelemetry's context
    from opentelemetry.context import Context

    return Context()


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {
        _PREFIX + name: one_line(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value != ""
    }


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "done"
    if not isinstance(error, Exception):
        return "cancelled"
    return type(error).__name__ if isinstance(error, CodecfleetError) else f"defect: {type(error).__name__}"
