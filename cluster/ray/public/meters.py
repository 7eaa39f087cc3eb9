"""Ray's metrics. The agent of each node collects them every 10 s, and serves them on the node's metrics port."""

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

Take: TypeAlias = Callable[[float, dict[str, str]], None]  #: A function that takes a value and its labels


class MetricKind(Enum):
    """A type of metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


def meter(kind: MetricKind, name: str, says: str, labels: tuple[str, ...], bounds: tuple[float, ...] = ()) -> Take:
    """Register a metric; return a function that sets a gauge, adds to a counter, or adds to a histogram."""
    from ray.util import metrics

    match kind:
        case MetricKind.GAUGE:
            return metrics.Gauge(name, says, labels).set
        case MetricKind.COUNTER:
            return metrics.Counter(name, says, labels).inc
        case MetricKind.HISTOGRAM:
            return metrics.Histogram(name, says, list(bounds), labels).observe
