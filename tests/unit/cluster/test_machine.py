"""The resources of this machine, and the time in which a process ran."""

import os
from pathlib import Path

import pytest

from codecfleet.cluster import machine
from codecfleet.cluster.awake_clock import AwakeClock


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1), ("", None), ("nonsense", None)],
)
def test_cores_follow_the_quota(tmp_path: Path, quota: str, cores: int | None) -> None:
    """A CPU quota below the affinity counts, rounded up; an unreadable quota does not."""
    (tmp_path / "cpu.max").write_text(quota)
    assert machine.cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))


def groups(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write a tree of control groups and the membership of this process; return the tree and /proc."""
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
    """The least limit of this cgroup and its ancestors counts, in either version, unless the machine has less."""
    assert machine.memory_bytes(*groups(tmp_path, membership, files)) == limit


V1_USE = {
    "memory.limit_in_bytes": "9000\n",
    "memory.usage_in_bytes": "4000\n",
    "memory.stat": "total_inactive_file 500",
}


@pytest.mark.parametrize(
    ("membership", "files", "available"),
    [
        ("0::/job\n", {"job/memory.max": "max\n", "job/memory.current": "5000\n"}, 8192),
        (
            "0::/job\n",
            {
                "job/memory.max": "9000\n",
                "job/memory.current": "5000\n",
                "job/memory.stat": "file 9\ninactive_file 800\n",
            },
            4800,
        ),
        ("0::/job\n", {"job/memory.max": "9000\n", "job/memory.current": "9001\n"}, 0),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": "9000\n", "a/memory.current": "7000\n"},
            2000,
        ),
        ("4:memory:/job\n", {f"memory/job/{name}": value for name, value in V1_USE.items()}, 5500),
        ("", {}, 8192),
    ],
)
def test_available_memory_is_the_least_of_machine_and_cgroups(
    membership: str, files: dict[str, str], available: int, tmp_path: Path
) -> None:
    """Cached files that the kernel takes back at once are available; so is memory only if no ancestor is full."""
    tree, proc = groups(tmp_path, membership, files)
    (proc / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:          8 kB\n")
    assert machine.available_memory_bytes(tree, proc) == available


@pytest.mark.parametrize(
    ("membership", "files", "kills"),
    [
        ("0::/job\n", {"job/memory.events": "low 0\noom 3\noom_kill 2\n"}, 2),
        ("4:memory:/job\n", {"memory/job/memory.oom_control": "under_oom 0\noom_kill 5\n"}, 5),
        ("0::/\n", {"memory.max": "max\n"}, 0),
    ],
)
def test_oom_kills_are_those_of_our_cgroup(membership: str, files: dict[str, str], kills: int, tmp_path: Path) -> None:
    """The kernel's counter is that of this process's own cgroup, in either version."""
    assert machine.oom_kills(*groups(tmp_path, membership, files)) == kills


def test_each_kill_explains_one_death() -> None:
    """With two kills, two of three deaths were caused by the OOM killer; kills before the start explain none."""
    count = 7
    kills = machine.OomKills(lambda: count)
    assert not kills.explains_a_death()
    count = 9
    assert [kills.explains_a_death() for _ in range(3)] == [True, True, False]


def test_shared_memory(tmp_path: Path) -> None:
    """If the folder of shared memory does not exist, there is none; an existing folder has some."""
    assert machine.shared_memory_free_bytes(tmp_path / "nowhere") == 0
    assert machine.shared_memory_free_bytes(tmp_path) > 0


def test_a_process_that_stood_still_has_not_waited() -> None:
    """Short steps count in full, and a suspension counts as the longest step."""
    readings = iter([100.0, 101.0, 103.0, 183.0, 184.0])
    clock = AwakeClock(5.0, lambda: next(readings))
    assert [clock() for _ in range(4)] == [101.0, 103.0, 108.0, 109.0]
