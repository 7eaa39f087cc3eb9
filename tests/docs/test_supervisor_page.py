"""docs/supervisor.md against the code: its table of states, its times, its names."""

import re
from pathlib import Path

import pytest

from codecfleet.cluster.fleet.leases.connecting import PRIVATE
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.backends.ray_backend import GPU_PREFIX
from codecfleet.cluster.supervisor.core import worker_events
from codecfleet.cluster.supervisor.runner.actor import SUPERVISOR
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX, EDGES, StationState

PAGE = (Path(__file__).parents[2] / "docs" / "supervisor.md").read_text(encoding="utf-8")
PLAIN = " ".join(PAGE.split())
SETTINGS = SupervisorSettings()


def documented_edges() -> set[tuple[str, str]]:
    """Return the edges in the table; an empty first cell stands for the one above it."""
    table = PAGE.partition("### States of a station")[2].partition("\n## ")[0]
    edges, origin = set(), ""
    for state, target in re.findall(r"^\| (?:`(\w+)`)? ?\|[^|]*\| `(\w+)` \|", table, re.MULTILINE):
        origin = state or origin
        edges.add((origin, target))
    return edges


def test_the_table_of_states_is_the_edges() -> None:
    """Every edge of a station has a row, and every row is an edge."""
    true = {(state.value, target.value) for state, targets in EDGES.items() for target in targets}
    assert documented_edges() == true
    assert {origin for origin, _ in documented_edges()} == {state.value for state in StationState}


@pytest.mark.parametrize(
    "said",
    [
        f"that is unused for {SETTINGS.idle_release_s:g} s is ended",
        f"no report for {SETTINGS.client_expiry_s:g} s",
        f"for {SETTINGS.recovery_s:g} s drivers keep what they hold",
        f"gives up after {SETTINGS.node_wait_s:g} s",
        f"gives up after {SETTINGS.device_wait_s:g} s. So does a job that only GPUs can serve",
        f"that takes {PRIVATE.device_wait_s:g} s",
        f"books {Policy().gpu_share:g} of the GPU once",
        f"`{GPU_PREFIX}NODE/gpu#0`",
        f"did not reserve it within {SETTINGS.reserve_limit_s:g} s",
        f"did not answer within {SETTINGS.start_limit_s:g} s",
        f"is given {SETTINGS.ping_limit_s:g} s",
        f"A quarantined CPU or DLA station gets nothing for {SETTINGS.quarantine_s:g} s",
        f"no heartbeat for {SETTINGS.fence_s:g} s",
        f"holds {Policy().gpu_share:g} of a GPU",
        f"neither driver nor worker for {SETTINGS.retire_s / 60:g} minutes",
        f"process, {DEATHS_IN_A_ROW_MAX} times in a row",
        f"A process that lived {worker_events.STEADY_S:g} s",
        f"`{SUPERVISOR}`",
    ],
)
def test_the_page_has_the_true_times_and_names(said: str) -> None:
    """Each time on the page is the setting's default."""
    assert said in PLAIN
