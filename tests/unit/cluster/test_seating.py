"""How slots are spread over processes and nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.seating import CORES_PER_PROCESS, NodeCores, Seat, seat_workers

nodes_of_any_kind = st.lists(
    st.integers(0, 200).flatmap(
        lambda cores: st.builds(NodeCores, st.uuids().map(str), st.just(cores), st.integers(0, cores))
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("cores", "slots", "seats"),
    [
        (1, None, [1]),
        (2, None, [2]),
        (8, None, [8]),
        (9, None, [5, 4]),
        (64, None, [8] * 8),
        (2, 1, [1]),
        (2, 9, [9]),
        (16, 2, [2]),
        (16, 40, [20, 20]),
    ],
)
def test_one_machine(cores: int, slots: int | None, seats: list[int]) -> None:
    """One process per 8 cores that are used, slots spread evenly, one a core unless asked otherwise."""
    assert [seat.slots for seat in seat_workers([NodeCores("a", cores, 0)], slots)] == seats


def test_a_cluster() -> None:
    """Slots follow the cores; a node without any gets nothing."""
    nodes = [NodeCores("head", 0, 0), NodeCores("a", 8, 8), NodeCores("b", 4, 1)]
    assert seat_workers(nodes, 6) == (Seat("a", 4, 4), Seat("b", 2, 1))


def test_no_cores_no_seats() -> None:
    """Where no node has a core there is nothing to run on."""
    assert seat_workers([NodeCores("head", 0, 0)], 4) == ()


@given(nodes_of_any_kind, st.none() | st.integers(1, 500))
def test_spreading(nodes: list[NodeCores], slots: int | None) -> None:
    """Every slot has a seat, no seat is empty, and no node is asked for CPUs or processes it does not have."""
    seats = seat_workers(nodes, slots)
    total = sum(node.cores for node in nodes)
    assert sum(seat.slots for seat in seats) == ((slots or total) if total else 0)
    assert all(seat.slots >= 1 and seat.reserved_cores <= seat.slots for seat in seats)
    for node in nodes:
        here = [seat for seat in seats if seat.node == node.node]
        assert sum(seat.reserved_cores for seat in here) <= node.free_cores
        assert len(here) <= -(-node.cores // CORES_PER_PROCESS)
        assert not here or max(s.slots for s in here) - min(s.slots for s in here) <= 1
