"""The tables of metrics and of log actions, as docs/metrics.md and docs/logs.md show them."""

from codecfleet.cluster.logs.actions import LEVELS, LogAction
from codecfleet.cluster.supervisor.metrics.table import METRICS, Metric, MetricKind


def metric_table() -> str:
    """Return a row for each metric: name, type, labels with their values, what it says."""
    rows = (f"| `{metric.name}` | {metric.kind.value} | {_labels(metric)} | {_says(metric)} |" for metric in METRICS)
    return "\n".join(["| metric | type | labels | what it says |", "|---|---|---|---|", *rows])


def action_table() -> str:
    """Return a row for each action of log entries: its word, its level, what it says."""
    rows = (f"| `{action.word}` | {LEVELS[action.level]} | {action.says} |" for action in LogAction)
    return "\n".join(["| action | level | what happened |", "|---|---|---|", *rows])


def _labels(metric: Metric) -> str:
    """Return its labels; `engine` is explained above the table where it is a worker's."""
    return "; ".join(
        f"`{label}`" if values == ("cpu", "gpu", "dla") else f"`{label}`: {', '.join(values)}"
        for label, values in metric.labels.items()
    )


def _says(metric: Metric) -> str:
    bounds = ", ".join(f"{bound:g}" for bound in metric.bounds)
    return f"{metric.says}; buckets to {bounds} s" if metric.kind is MetricKind.HISTOGRAM else metric.says
