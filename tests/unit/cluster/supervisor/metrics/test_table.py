"""The table of metrics keeps Prometheus's rules, and stays small."""

import math
import re

import pytest

from codecfleet.cluster.supervisor.metrics.table import METRICS, Metric

UNITS = ("_seconds", "_bytes", "_frames", "_fps", "_ratio")
SERIES_MAX = 400
"""Of a whole cluster: what one scrape costs does not grow with it."""


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_keep_prometheus_rules(metric: Metric) -> None:
    """Ours have one prefix, histograms have rising bounds and a unit, and nothing is reserved."""
    assert re.fullmatch(r"codecfleet(_[a-z]+)+", metric.name)
    assert not metric.name.endswith(("_bucket", "_sum", "_count"))
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert not metric.bounds or metric.name.endswith(UNITS)
    for label, values in metric.labels.items():
        assert re.fullmatch(r"[a-z_]+", label)
        assert len(set(values)) == len(values) > 1


def test_names_are_unique_and_series_few() -> None:
    """No two metrics share a name, and all series together are few."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    series = sum(
        (len(metric.bounds) + 3 if metric.bounds else 1) * math.prod(map(len, metric.labels.values()))
        for metric in METRICS
    )
    assert series <= SERIES_MAX
