"""The supervisor's metrics in Ray, whose agent serves them on each node's metrics port."""

from ...ray.public.meters import Take, counter, gauge, histogram
from .table import METRICS, Metric, MetricKind, MetricSample
from .tally import TakeSamples


def ray_metrics() -> TakeSamples:
    """Register every metric of the table in this process; return a function that passes samples on to Ray."""
    meters = {metric.name: _meter(metric) for metric in METRICS}

    def take(samples: tuple[MetricSample, ...]) -> None:
        for sample in samples:
            meters[sample.metric.name](sample.value, sample.tags)

    return take


def _meter(metric: Metric) -> Take:
    labels = tuple(metric.labels)
    match metric.kind:
        case MetricKind.COUNTER:
            return counter(metric.name, metric.says, labels)
        case MetricKind.GAUGE:
            return gauge(metric.name, metric.says, labels)
        case MetricKind.HISTOGRAM:
            return histogram(metric.name, metric.says, labels, metric.bounds)
