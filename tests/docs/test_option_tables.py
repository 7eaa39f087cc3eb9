"""The documents' tables of options match the options; ``make docs`` writes the tables."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .option_tables import (
    action_table,
    command_table,
    config_table,
    key_table,
    metric_table,
    preset_table,
    prometheus_rule,
    template,
)

REPOSITORY = Path(__file__).parents[2]
CHAPTERS = (
    ("transcode",),
    ("batch",),
    ("resume",),
    ("probe", "plan", "verify"),
    ("ladder",),
    ("stills",),
    ("infer",),
    ("submit", "jobs", "driver", "tenants", "usage"),
    ("up", "down"),
    ("node start", "node stop", "node list", "node env"),
    ("doctor", "nodes", "devices"),
    ("status", "top", "dashboard", "drain", "cordon", "uncordon", "node drain"),
)
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "keys": ("docs/config.md", key_table),
    "configuration": ("docs/config.md", config_table),
    "presets": ("docs/config.md", preset_table),
    "metrics": ("docs/metrics.md", metric_table),
    "actions": ("docs/logs.md", action_table),
    **{f"codecfleet {names[0]}": ("docs/cli.md", partial(command_table, *names)) for names in CHAPTERS},
}


def held(path: Path, wanted: str) -> bool:
    """Tell whether a file has this text; with ``UPDATE_DOCS=1``, write the text into the file first."""
    if os.environ.get("UPDATE_DOCS") == "1":
        path.write_text(wanted, encoding="utf-8")
    return path.read_text(encoding="utf-8") == wanted


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_the_options_make(name: str) -> None:
    """Between a table's marks stands the table that the options make."""
    path, table = REPOSITORY / TABLES[name][0], TABLES[name][1]()
    begin, end = f"<!-- options: {name} -->", "<!-- end -->"
    text = path.read_text(encoding="utf-8")
    assert text.count(begin) == 1
    wanted = re.sub(rf"{begin}.*?{end}", lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)
    assert held(path, wanted), "make docs writes it"


def test_the_shipped_spec_file_is_what_the_options_make() -> None:
    """configs/transcode.toml has each key with its default or an example."""
    assert held(REPOSITORY / "configs" / "transcode.toml", template()), "make docs writes it"


def test_kubernetes_has_the_alerts_of_prometheus() -> None:
    """The PrometheusRule has the alerts of deploy/prometheus/alerts.yaml."""
    deploy = REPOSITORY / "deploy"
    assert held(
        deploy / "kubernetes" / "monitoring" / "alerts.yaml",
        prometheus_rule((deploy / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")),
    ), "make docs writes it"
