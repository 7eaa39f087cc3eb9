"""Whether a driver may claim a job."""

import socket
from pathlib import Path

import pytest

from codecfleet.cluster.node.claiming import Room, obstacle, shortage
from codecfleet.cluster.queue.driver import Obstacle

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("free", "least", "why"),
    [
        (Room(), Room(), ""),
        (Room(2 * GB, 30 * GB), Room(2 * GB, 30 * GB), ""),
        (Room(2 * GB - 1, 30 * GB), Room(2 * GB), "2.0 GB of memory is free, less than 2.0 GB"),
        (Room(0, 5 * GB), Room(0, 30 * GB), "5.0 GB of disk is free, less than 30.0 GB"),
        (
            Room(GB, GB),
            Room(2 * GB, 30 * GB),
            "1.0 GB of memory is free, less than 2.0 GB and 1.0 GB of disk is free, less than 30.0 GB",
        ),
    ],
)
def test_a_driver_claims_only_with_enough_room(free: Room, least: Room, why: str) -> None:
    """Each figure counts by itself; exactly as much as stated is enough."""
    assert shortage(free, least) == why


def test_a_driver_claims_only_while_the_head_answers(tmp_path: Path) -> None:
    """A driver without a cluster, or with one that Ray has to find, does not ask."""
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{head.getsockname()[1]}"
        found = obstacle(Room(), tmp_path, address)
        assert address in found.reason
        assert found.fails_jobs
        head.listen()
        assert obstacle(Room(), tmp_path, address) == Obstacle()
    assert {obstacle(Room(1, 1), tmp_path, head) for head in (None, "auto", "local")} == {Obstacle()}
    assert obstacle(Room(), tmp_path, "a..b:6379").fails_jobs


def test_a_shortage_fails_no_running_job(tmp_path: Path) -> None:
    """Neither does a temporary folder that is gone; the driver goes on."""
    short, gone = (obstacle(Room(1, least), tmp_path / name, None) for name, least in (("", 1 << 62), ("gone", 1)))
    assert "of disk" in short.reason
    assert "No such file" in gone.reason
    assert not short.fails_jobs
    assert not gone.fails_jobs
