"""What this machine grants."""

import os
from pathlib import Path

import pytest

from codecfleet.cluster import machine


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1), ("", None), ("nonsense", None)],
)
def test_cores_follow_the_quota(tmp_path: Path, quota: str, cores: int | None) -> None:
    """A CPU quota below the affinity counts, rounded up; anything unreadable does not."""
    (tmp_path / "cpu.max").write_text(quota)
    assert machine.cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))


def test_memory_follows_the_limit(tmp_path: Path) -> None:
    """A memory limit counts where it is below the machine's memory."""
    physical = machine.memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("1048576\n")
    assert machine.memory_bytes(tmp_path) == 1 << 20
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_bytes(tmp_path) == physical


def test_shared_memory(tmp_path: Path) -> None:
    """A place that is not there has no room; one that is has some."""
    assert machine.shared_memory_free_bytes(tmp_path / "nowhere") == 0
    assert machine.shared_memory_free_bytes(tmp_path) > 0
