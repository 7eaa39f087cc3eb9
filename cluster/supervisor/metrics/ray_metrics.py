"""The supervisor's metrics in Ray, whose agent serves them on each node's metrics port.

This module imports ray: import it only where the environment that Ray reads then is settled.
"""

from ray.util.metrics import Counter, Gauge, Histogram

from .table import METRICS, Metric, MetricKind, MetricSample


class RayMetrics:
    """Every metric of the table, in the process that makes this."""

    def __init__(self) -> None:
        self._meters = {metric.name: _meter(metric) for metric in METRICS}

    def take(self, samples: tuple[MetricSample, ...]) -> None:
        """Pass samples on to Ray, which exports what it has every 10 s.

        Raises:
            ValueError: a label's value that the table does not list.
        """
        for sample in samples:
            match self._meters[sample.metric.name]:
                case Counter() as counter:
                    counter.inc(sample.value, sample.tags)
                case Gauge() as gauge:
                    gauge.set(sample.value, sample.tags)
                case Histogram() as histogram:
                    histogram.observe(sample.value, sample.tags)


def _meter(metric: Metric) -> Counter | Gauge | Histogram:
    labels = tuple(metric.labels)
    match metric.kind:
        case MetricKind.COUNTER:
            return Counter(metric.name, metric.says, labels)
        case MetricKind.GAUGE:
            return Gauge(metric.name, metric.says, labels)
        case MetricKind.HISTOGRAM:
            return Histogram(metric.name, metric.says, list(metric.bounds), labels)
