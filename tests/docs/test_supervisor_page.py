"""docs/supervisor.md against the code: its table of states, its times, its names."""

import re
from pathlib import Path

import pytest

from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.worker_events import STEADY_S
from codecfleet.cluster.supervisor.runner.actor import SUPERVISOR
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX, StationState

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "supervisor.md").read_text(encoding="utf-8").split())
SETTINGS = SupervisorSettings()


def test_every_state_of_a_station_has_its_row() -> None:
    """The rows are in the enum's order."""
    table = PAGE.partition("### States of a station")[2].partition("## ")[0]
    assert re.findall(r"\| `(\w+)` \|", table) == [state.value for state in StationState]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ("unused for", f"{SETTINGS.idle_release_s:g} s"),
        ("no report for", f"{SETTINGS.client_expiry_s:g} s"),
        ("adopts all workers; for", f"{SETTINGS.recovery_s:g} s"),
        ("waiting cannot help: after", f"{SETTINGS.node_wait_s:g} s"),
        ("until these are reserved; after", f"{SETTINGS.reserve_limit_s:g} s"),
        ("until the process answers; after", f"{SETTINGS.start_limit_s:g} s"),
        ("one may be", f"{SETTINGS.ping_limit_s:g} s"),
        ("station in quarantine gets no work for", f"{SETTINGS.quarantine_s:g} s"),
        ("no heartbeat for", f"{SETTINGS.fence_s:g} s"),
        ("health Every", f"{SETTINGS.health_s:g} s"),
        ("A GPU worker holds", f"{Policy().gpu_share:g} of"),
        ("after", f"{SETTINGS.retire_s / 60:g} minutes without programs and workers"),
        ("worker process dies", f"{DEATHS_IN_A_ROW_MAX} times in a row"),
        ("in a row, none of which lived", f"{STEADY_S:g} s"),
        ("holds", f"`{SUPERVISOR}`"),
    ],
)
def test_the_page_has_the_true_times_and_names(about: str, said: str) -> None:
    """The times, counts and names on the page are the code's."""
    assert f"{about} {said}" in PAGE
