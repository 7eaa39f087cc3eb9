"""Alerts and the dashboard: they ask for metrics, labels and values that the supervisor has, and promtool agrees."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cluster.supervisor.metrics.table import ANY, METRICS, Metric, MetricKind

from .conftest import yaml_load_all

PREFIX = "ray_"
SERIES = {
    PREFIX + metric.name + suffix: metric
    for metric in METRICS
    for suffix in (("_bucket",) if metric.kind is MetricKind.HISTOGRAM else ("",))
}
"""The series that queries may use: only the buckets of a histogram, since Ray's sums are not exact."""
OF_RAY = Metric("node_cpu_count", "Ray's own", {"RayNodeType": ("head", "worker")})
BUCKET = "le"
_SELECTOR = re.compile(r"(ray_\w+)(?:\{([^}]*)\})?(\[)?")
_MATCHER = re.compile(r'(\w+)(=|!=)"([^"]*)"')
_GROUPING = re.compile(r"by \(([^)]*)\)")


def wrong_in(expression: str) -> Iterator[str]:
    """Yield the metrics, labels and values that an expression asks for although no series has them."""
    found: list[Metric] = []
    for name, matchers, _ in _SELECTOR.findall(expression):
        metric = {**SERIES, PREFIX + OF_RAY.name: OF_RAY}.get(name)
        if metric is None:
            yield f"{name} is not a metric"
            continue
        found.append(metric)
        for label, _, value in _MATCHER.findall(matchers):
            if metric.labels.get(label) != ANY and value not in metric.labels.get(label, ()):
                yield f"{name} has no {label}={value}"
    for labels in _GROUPING.findall(expression):
        for label in labels.split(", "):
            if not any(label in metric.labels or (label == BUCKET and metric.bounds) for metric in found):
                yield f"no metric of {expression} has the label {label}"
    yield from _counted_wrongly(expression)


def _counted_wrongly(expression: str) -> Iterator[str]:
    """Yield counters and buckets that are read without `rate` or `increase`, and gauges that are read with either."""
    for match in _SELECTOR.finditer(expression):
        metric = SERIES.get(match[1])
        grows = expression[: match.start()].endswith(("rate(", "increase("))
        if metric is not None and grows is (metric.kind is MetricKind.GAUGE):
            yield f"{match[1]}: rate and increase are for what only grows, and needed there"


@pytest.fixture(scope="module")
def alerts(deploy: Path) -> list[dict[str, Any]]:
    """The alert rules."""
    (document,) = yaml_load_all((deploy / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def panels(deploy: Path) -> list[dict[str, Any]]:
    """The dashboard's panels."""
    dashboard: dict[str, list[dict[str, Any]]] = json.loads((deploy / "grafana" / "codecfleet.json").read_text())
    return dashboard["panels"]


def test_alerts_ask_for_what_there_is(alerts: list[dict[str, Any]]) -> None:
    """Each name of a metric, a label and a label's value is in the table."""
    assert [wrong for rule in alerts for wrong in wrong_in(rule["expr"])] == []


def kept(relabelings: list[dict[str, Any]]) -> re.Pattern[str]:
    """Return which names of metrics a Prometheus keeps."""
    (rule,) = [each for each in relabelings if each.get("action") == "keep"]
    assert rule.get("source_labels", rule.get("sourceLabels")) == ["__name__"]
    return re.compile(rule["regex"])


def test_what_alerts_and_panels_ask_for_is_kept(
    alerts: list[dict[str, Any]], panels: list[dict[str, Any]], deploy: Path
) -> None:
    """Both Prometheus and Prometheus Operator keep each metric of the table and of the alerts, and few others."""
    (config,) = yaml_load_all((deploy / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    (monitor,) = yaml_load_all((deploy / "kubernetes" / "monitoring" / "pod-monitor.yaml").read_text(encoding="utf-8"))
    (scrape,), (endpoint,) = config["scrape_configs"], monitor["spec"]["podMetricsEndpoints"]
    queries = [rule["expr"] for rule in alerts] + [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name, _, _ in _SELECTOR.findall(query)} | SERIES.keys()
    for names in (kept(scrape["metric_relabel_configs"]), kept(endpoint["metricRelabelings"])):
        assert [name for name in asked if not names.fullmatch(name)] == []
        assert not names.fullmatch("ray_tasks")


def test_prometheus_reads_the_lists_that_ray_writes(deploy: Path) -> None:
    """Ray's folder is /tmp/ray, or the one that the services set; the group of their user may enter it."""
    (config,) = yaml_load_all((deploy / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    (found,) = config["scrape_configs"][0]["file_sd_configs"]
    service = (deploy / "systemd" / "codecfleet-.service.d" / "node.conf").read_text(encoding="utf-8")
    (folder,) = re.findall(r"^Environment=RAY_FILES=%S(/\S+)$", service, re.MULTILINE)
    folders = ("/tmp/ray", f"/var/lib{folder}")  # noqa: S108 - Ray's own
    assert found["files"] == [f"{each}/prom_metrics_service_discovery.json" for each in folders]
    assert "\nStateDirectoryMode=0710\n" in service


def test_each_alert_says_what_to_do(alerts: list[dict[str, Any]], repository: Path) -> None:
    """Each alert has a summary and a description; docs/metrics.md says how many alerts there are."""
    assert all(rule["annotations"].keys() >= {"summary", "description"} for rule in alerts)
    assert f"has {len(alerts)} alerts" in (repository / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_dashboard_asks_for_what_there_is(panels: list[dict[str, Any]]) -> None:
    """Each name in the dashboard's queries is in the table, and the dashboard shows each metric of the table."""
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert [wrong for query in queries for wrong in wrong_in(query)] == []
    shown = {name for query in queries for name, _, _ in _SELECTOR.findall(query)}
    assert shown == set(SERIES)


def test_the_dashboards_legends_name_labels_that_remain(panels: list[dict[str, Any]]) -> None:
    """A legend shows only labels by which its query groups."""
    for target in (target for panel in panels for target in panel["targets"]):
        kept = {label for labels in _GROUPING.findall(target["expr"]) for label in labels.split(", ")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, target


@pytest.mark.parametrize(
    "question",
    [
        ("check", "config", "prometheus.yaml"),
        ("check", "rules", "--lint-fatal", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
    ],
    ids=["config", "rules", "alerts"],
)
def test_promtool_agrees(question: tuple[str, ...], deploy: Path) -> None:
    """Configuration and rules are sound; each alert comes in a cluster in trouble, and none in a healthy one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool, which Debian's package prometheus has")
    answer = subprocess.run(
        [promtool, *question], capture_output=True, text=True, check=False, cwd=deploy / "prometheus"
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
