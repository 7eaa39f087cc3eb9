"""What names say: a worker is ``NODE/ENGINE#NUMBER:EPOCH``, its station is that without the epoch."""

from typing import Final

CONTROL: Final = "control"
"""The concurrency group of all of a worker's calls but work: its own thread and event loop always answer."""

WORKER_PREFIX: Final = "codecfleet-worker "
"""What stands before a worker's name where it is that of a Ray actor."""


def node_of(station: str) -> str:
    """Return the node's id in a station's."""
    return station.rpartition("/")[0]


def station_of(worker: str) -> str:
    """Return the station's id in a worker's name."""
    return worker.rpartition(":")[0]


def engine_of(station: str) -> str:
    """Return the engine in a station's name: cpu, gpu or dla."""
    return station.rpartition("/")[2].partition("#")[0]


def has_device(station: str) -> bool:
    """Return whether the station of that name is a GPU's, a slice's or a DLA's."""
    return engine_of(station) in {"gpu", "dla"}


def epoch_of(worker: str) -> int:
    """Return the epoch in a worker's name."""
    return int(worker.rpartition(":")[2])
