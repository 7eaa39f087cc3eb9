"""How a node's cores are divided among worker processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.machine import CORES_PER_PROCESS
from codecfleet.cluster.placement.model.inventory import processor_of
from codecfleet.cluster.supervisor.state.nodes import NO_UNITS
from codecfleet.cluster.supervisor.state.stations import stations_of


@pytest.mark.parametrize(
    ("cores", "slots"),
    [(0, []), (1, [1]), (2, [2]), (8, [8]), (9, [5, 4]), (64, [8] * 8)],
)
def test_a_process_for_every_eight_cores(cores: int, slots: list[int]) -> None:
    """Slots are spread evenly over as few processes as may serve them; a node without cores has none."""
    assert [station.slots for station in stations_of(processor_of("n", "host", cores), 0, NO_UNITS)] == slots


@given(st.integers(1, 2000))
def test_stations_hold_every_core(cores: int) -> None:
    """Every core has a station, no station is empty or too large, and stations of a node are alike."""
    stations = stations_of(processor_of("n", "host", cores), 0, NO_UNITS)
    assert sum(station.slots for station in stations) == cores
    assert all(1 <= station.slots <= CORES_PER_PROCESS for station in stations)
    assert max(station.slots for station in stations) - min(station.slots for station in stations) <= 1
    assert len({station.station for station in stations}) == len(stations)
