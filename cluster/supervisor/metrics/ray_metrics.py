"""The supervisor's metrics in Ray, whose agent serves them on each node's metrics port."""

from ...ray.public.meters import meter
from .table import METRICS, MetricSample
from .tally import TakeSamples


def ray_metrics() -> TakeSamples:
    """Register every metric of the table in this process; return a function that passes samples on to Ray."""
    meters = {each.name: meter(each.kind, each.name, each.says, tuple(each.labels), each.bounds) for each in METRICS}

    def take(samples: tuple[MetricSample, ...]) -> None:
        for sample in samples:
            meters[sample.metric.name](sample.value, sample.tags)

    return take
