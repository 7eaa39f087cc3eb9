"""The supervisor's metrics in Ray, whose agent serves them on each node's metrics port."""

from ...ray.public.meters import Take, counter, gauge, histogram
from .table import METRICS, Metric, MetricKind, MetricSample


class RayMetrics:
    """Every metric of the table, in the process that makes this."""

    def __init__(self) -> None:
        self._meters = {metric.name: _meter(metric) for metric in METRICS}

    def take(self, samples: tuple[MetricSample, ...]) -> None:
        """Pass samples on to Ray.

        Raises:
            ValueError: a label's value that the table does not list.
        """
        for sample in samples:
            self._meters[sample.metric.name](sample.value, sample.tags)


def _meter(metric: Metric) -> Take:
    labels = tuple(metric.labels)
    match metric.kind:
        case MetricKind.COUNTER:
            return counter(metric.name, metric.says, labels)
        case MetricKind.GAUGE:
            return gauge(metric.name, metric.says, labels)
        case MetricKind.HISTOGRAM:
            return histogram(metric.name, metric.says, labels, metric.bounds)
