"""Names of stations and workers: what can be read from them, and what the empty name means."""

import pickle

import pytest

from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.worker_names import NO_WORKER, StationId, WorkerId


@pytest.mark.parametrize(
    ("name", "kind", "number", "part", "bundle", "has_device"),
    [
        ("n/cpu#3", DeviceKind.CPU, 3, 0, "n/cpu#3", False),
        ("n/gpu#0", DeviceKind.GPU, 0, 0, "n/gpu#0", True),
        ("n/gpu#2.1", DeviceKind.GPU, 2, 1, "n/gpu#2", True),
        ("a.b/dla#1", DeviceKind.DLA, 1, 0, "a.b/dla#1", True),
    ],
)
def test_a_name_says_all(name: str, kind: DeviceKind, number: int, part: int, bundle: str, *, has_device: bool) -> None:
    """The parts of a station's name can be read and make the same name again; a worker's name adds its epoch."""
    station = StationId(name)
    assert (station.kind, station.number, station.part, station.bundle) == (kind, number, part, bundle)
    assert (station.has_device, StationId.of(station.node, kind, number, part)) == (has_device, name)
    worker = WorkerId.of(station, 7)
    assert (worker.station, worker.station.node, worker.epoch, pickle.loads(pickle.dumps(worker))) == (  # noqa: S301
        station,
        station.node,
        7,
        worker,
    )


def test_no_worker_has_no_device() -> None:
    """Work whose worker is unknown has a station with an empty name, which belongs to nobody."""
    assert (NO_WORKER.station, NO_WORKER.station.node, NO_WORKER.station.has_device) == ("", "", False)
    with pytest.raises(KeyError):
        _ = NO_WORKER.station.kind
