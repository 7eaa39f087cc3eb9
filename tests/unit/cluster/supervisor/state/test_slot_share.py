"""How slots are dealt out to worker processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.placement.model.inventory import processor_of
from codecfleet.cluster.supervisor.state.nodes import NO_UNITS
from codecfleet.cluster.supervisor.state.slot_share import CORES_PER_PROCESS, share_out
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


@given(st.integers(0, 500), st.lists(st.integers(1, 50), max_size=12))
def test_sharing_out_loses_nothing(total: int, weights: list[int]) -> None:
    """Shares add up to the total and differ from their exact part by less than one."""
    shares = share_out(total, weights)
    assert sum(shares) == (total if weights else 0)
    exact = [total * weight / sum(weights) for weight in weights]
    assert all(abs(share - part) < 1 for share, part in zip(shares, exact, strict=True))
