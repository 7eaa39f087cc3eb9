"""Traces of real jobs as a collector receives them: one tree, even if a worker dies."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from codecfleet.actors import tracing
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.segment.together import EncodeTogether
from codecfleet.errors import InputNotFound
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import planned, spec_of, transcode
from .ray_cluster import ray_cluster
from .trace_collector import Seen, collector

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"
STAGES = ["index", "plan", "startup", "encode", "gather", "proof", "publish"]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that have ended in this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    found = tracing.Tracing(provider.get_tracer("codecfleet"))
    monkeypatch.setattr(tracing, "tracing", lambda: found)
    yield exporter
    provider.shutdown()


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """Fifty small pictures with two access points."""
    clip = Clip(times=constant_times(50), keyframes=frozenset({0, 25}), options=(("preset", "ultrafast"),))
    return make_clip(tmp_path / "film.mp4", clip)


@pytest.fixture
def long_film(tmp_path: Path) -> Path:
    """Four hundred pictures with eight access points."""
    keys = frozenset(range(0, 400, 50))
    return make_clip(tmp_path / "film.mp4", Clip(times=constant_times(400), width=320, height=240, keyframes=keys))


def seen(exporter: InMemorySpanExporter) -> list[Seen]:
    """Return the spans as a collector would receive them."""
    return [
        Seen(
            f"{each.context.trace_id:032x}",
            f"{each.context.span_id:016x}",
            "" if each.parent is None else f"{each.parent.span_id:016x}",
            each.name,
            "",
            dict(each.attributes or {}),
        )
        for each in exporter.get_finished_spans()
    ]


def check_tree(spans: list[Seen], caller: str = "") -> Seen:
    """Check that the spans are one tree with the job's span as its root, below ``caller``; return the root."""
    (job,) = (each for each in spans if each.name == "job")
    assert job.parent == caller
    assert {each.trace for each in spans} == {job.trace}
    above = {each.span: each.name for each in spans}
    parents = {"segment": "job", "encode work": "segment", **dict.fromkeys(STAGES, "job")}
    assert all(above[each.parent] == parents[each.name] for each in spans if each is not job)
    return job


def test_a_job_is_one_tree(film: Path, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the caller's span: the job's stages, an attempt for each segment, and the worker's steps in it."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    report = transcode(spec_of(film, film.with_name("o.mp4"), preset=1, segment_s=1))
    spans = seen(exported)
    job = check_tree(spans, CALLER)
    assert job.trace == TRACE
    assert (job.of("frames"), job.of("outcome"), job.of("source")) == (50, "done", str(film))
    assert [each.name for each in spans if each.name in STAGES] == STAGES
    for name in ("segment", "encode work"):
        tries = sorted((each for each in spans if each.name == name), key=lambda each: each.of("segment"))
        assert [each.of("segment") for each in tries] == [each.segment for each in report.segments] == [0, 1]
        assert [(each.of("frames"), each.of("decoded_by"), each.of("codec")) for each in tries] == [
            (25, "software", "h264")
        ] * 2
    assert all(each.of("process") == os.getpid() for each in spans if each.name == "encode work")


def test_a_try_whose_worker_died_is_beside_the_next(film: Path, exported: InMemorySpanExporter) -> None:
    """Both attempts belong to the job; the first one's outcome is the error, with its place."""
    pool = FaultyPool(LocalPool(slots=2), kills=[("segment 1", 1)])
    transcode(spec_of(film, film.with_name("o.mp4"), preset=1, segment_s=1), pool=pool)
    spans = seen(exported)
    check_tree(spans)
    tries = [each for each in spans if each.name == "segment" and each.of("segment") == 1]
    assert [(each.of("attempt"), each.of("outcome")) for each in tries] == [(1, "WorkerLost"), (2, "done")]
    assert [each.parent for each in spans if each.name == "encode work" and each.of("segment") == 1] == [tries[1].span]


def test_renditions_encoded_together_have_a_span_each(film: Path, exported: InMemorySpanExporter) -> None:
    """Each rendition's work is below its own segment's span."""
    work = planned(film, preset=1).work("job", 0, 0, 0)
    parents = sorted((CALLER, CALLER[::-1]))
    others = [replace(work, traceparent=PARENT.replace(CALLER, parent), job=parent) for parent in parents]
    EncodeTogether(job="job", label="both", segments=(work, *others)).run(WorkContext())
    assert sorted((each.parent, each.of("job"), each.of("outcome"), each.of("frames")) for each in seen(exported)) == [
        (parent, parent, "done", 50) for parent in parents
    ]


def test_a_failed_job_says_why_and_shows_no_secret(exported: InMemorySpanExporter, tmp_path: Path) -> None:
    """The outcome is the error's class, and addresses are redacted."""
    with pytest.raises(InputNotFound):
        transcode(spec_of("memory://me:Hidden0Value@host/none.mp4", tmp_path / "o.mp4"))
    spans = exported.get_finished_spans()
    assert {each.name for each in spans} == {"job", "index"}
    assert {(each.attributes or {})["codecfleet.outcome"] for each in spans} == {"InputNotFound"}
    assert {each.status.status_code.name for each in spans} == {"ERROR"}
    assert "Hidden0Value" not in "".join(each.to_json() for each in spans)


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "console, OTLP"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "console"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_traces_are_asked_for_by_the_standard_variables(environment: Mapping[str, str], asked: bool) -> None:  # noqa: FBT001 - a parameter
    """Traces are on if a variable names an exporter or a collector, and none switches them off."""
    assert tracing.names_collector(environment) == asked


GRPC = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


@pytest.mark.parametrize(
    ("environment", "missing", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "none"}, False, []),
        ({"OTEL_TRACES_EXPORTER": "console,zipkin,console"}, False, ["asks for console, zipkin: traces are sent as"]),
        (GRPC, False, ["traces are sent as http/protobuf, not as grpc"]),
        (GRPC, True, []),
        (GRPC | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, False, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, []),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, ["to send them"]),
    ],
)
def test_what_is_asked_of_traces_and_not_done_is_said(
    environment: Mapping[str, str],
    missing: bool,  # noqa: FBT001 - a parameter
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user is told about other exporters, another protocol, and a named exporter that is not installed."""

    def version(package: str) -> str:
        if missing:
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr("importlib.metadata.version", version)
    lines = tracing.unserved(environment)
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_what_opentelemetry_refuses_ends_no_job(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a meaningless variable or an incomplete package, the job says so and runs."""

    def refuse() -> tracing.Tracing:
        raise ValueError("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got x")

    monkeypatch.setattr(tracing, "is_traced", lambda _: True)
    monkeypatch.setattr(tracing, "_opened", refuse)
    monkeypatch.setattr(tracing, "_begun", cache(tracing._begun.__wrapped__))
    report = transcode(spec_of(film, film.with_name("o.mp4"), preset=1))
    (said,) = (each.message for each in report.warnings if each.code == "traces")
    assert said.startswith("no traces are sent: ValueError: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_spans_of_two_nodes_are_one_tree(long_film: Path) -> None:
    """On a cluster whose nodes name the collector, each node's worker spans are below the job that asked."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    with collector() as (address, spans):
        named = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "TRACEPARENT": PARENT}
        with ray_cluster(1, 1, env=named) as cluster:
            for _ in range(2):  # The second job finds both workers ready.
                spans.clear()
                words = ("transcode", str(long_film), str(long_film.with_name("o.mp4")), "--overwrite")
                done = cluster.run(*words, "--segment-seconds", "2", "--preset", "1")
                assert done.returncode == 0, done.stderr
    check_tree(spans, CALLER)
    assert len({each.of("process") for each in spans if each.name == "encode work"}) == 2
