"""Whether a driver may claim a job."""

import socket
from pathlib import Path

import pytest

from codecfleet.cluster.node.claiming import Room, shortage, why_no_claim

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
        assert address in why_no_claim(Room(), tmp_path, address)
        head.listen()
        assert why_no_claim(Room(), tmp_path, address) == ""
    assert why_no_claim(Room(1, 1), tmp_path, None) == why_no_claim(Room(1, 1), tmp_path, "auto") == ""
    assert "of disk" in why_no_claim(Room(1, 1 << 62), tmp_path, None)
