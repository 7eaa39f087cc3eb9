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


def groups(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write a tree of control groups, and which of them is ours; return the tree and /proc."""
    tree, proc = folder / "cgroup", folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    tree.mkdir()
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        (path.parent / "memory.stat").touch()
    return tree, proc


PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED = "9223372036854771712\n"
VERSION_1 = "9:cpuset:/x\n4:memory:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1048576\n"}, 1 << 20),
        ("0::/\n", {"memory.max": "max\n"}, PHYSICAL),
        ("0::/job/step\n", {"job/step/memory.max": "max\n", "job/memory.max": "1048576\n"}, 1 << 20),
        ("0::/job/step\n", {"job/step/memory.max": "4096\n", "job/memory.max": "1048576\n"}, 4096),
        ("0::/hidden/by/the/container\n", {"memory.max": "1048576\n"}, 1 << 20),
        (VERSION_1, {"memory/job/step/memory.limit_in_bytes": "1048576\n"}, 1 << 20),
        (
            VERSION_1,
            {"memory/job/step/memory.limit_in_bytes": UNLIMITED, "memory/job/memory.limit_in_bytes": "4096\n"},
            4096,
        ),
        (VERSION_1, {"memory/memory.limit_in_bytes": UNLIMITED}, PHYSICAL),
        ("", {}, PHYSICAL),
    ],
)
def test_memory_follows_the_least_limit(membership: str, files: dict[str, str], limit: int, tmp_path: Path) -> None:
    """The least limit of our cgroup and those around it counts, in either version, where it is below the machine's."""
    assert machine.memory_bytes(*groups(tmp_path, membership, files)) == limit


def test_shared_memory(tmp_path: Path) -> None:
    """A place that is not there has no room; one that is has some."""
    assert machine.shared_memory_free_bytes(tmp_path / "nowhere") == 0
    assert machine.shared_memory_free_bytes(tmp_path) > 0
