"""Ray's metrics. The agent of each node collects them every 10 s, and serves them on the node's metrics port."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Take: TypeAlias = Callable[[float, Mapping[str, str]], None]  #: A function that takes a value and its labels


def counter(name: str, says: str, labels: Sequence[str]) -> Take:
    """Return a function that adds to a counter."""
    from ray.util.metrics import Counter

    meter = Counter(name, says, tuple(labels))
    return lambda value, tags: meter.inc(value, dict(tags))


def gauge(name: str, says: str, labels: Sequence[str]) -> Take:
    """Return a function that sets a gauge."""
    from ray.util.metrics import Gauge

    meter = Gauge(name, says, tuple(labels))
    return lambda value, tags: meter.set(value, dict(tags))


def histogram(name: str, says: str, labels: Sequence[str], bounds: Sequence[float]) -> Take:
    """Return a function that adds an observation to a histogram."""
    from ray.util.metrics import Histogram

    meter = Histogram(name, says, list(bounds), tuple(labels))
    return lambda value, tags: meter.observe(value, dict(tags))
