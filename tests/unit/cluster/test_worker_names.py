"""Names of stations and workers: what they say, and what no name says."""

import pickle

import pytest

from codecfleet.cluster.worker_names import NO_WORKER, Seat, StationId, WorkerId


@pytest.mark.parametrize(
    ("name", "seat", "number", "part", "bundle", "has_device"),
    [
        ("n/cpu#3", Seat.CPU, 3, 0, "n/cpu#3", False),
        ("n/gpu#0", Seat.GPU, 0, 0, "n/gpu#0", True),
        ("n/gpu#2.1", Seat.GPU, 2, 1, "n/gpu#2", True),
        ("a.b/dla#1", Seat.DLA, 1, 0, "a.b/dla#1", True),
    ],
)
def test_a_name_says_all(name: str, seat: Seat, number: int, part: int, bundle: str, *, has_device: bool) -> None:
    """Each part of a station's name comes back, and makes the same name again; a worker's adds its epoch."""
    station = StationId(name)
    assert (station.seat, station.number, station.part, station.bundle) == (seat, number, part, bundle)
    assert (station.has_device, StationId.of(station.node, seat, number, part)) == (has_device, name)
    worker = WorkerId.of(station, 7)
    assert (worker.station, worker.station.node, worker.epoch, pickle.loads(pickle.dumps(worker))) == (  # noqa: S301
        station,
        station.node,
        7,
        worker,
    )


def test_no_worker_has_no_device() -> None:
    """Work whose worker is not known has a station without a name, which is nobody's."""
    assert (NO_WORKER.station, NO_WORKER.station.node, NO_WORKER.station.has_device) == ("", "", False)
    with pytest.raises(ValueError, match="Seat"):
        _ = NO_WORKER.station.seat
