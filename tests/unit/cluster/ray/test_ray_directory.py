"""The folder of a private Ray's files: refused places, and leftovers of other drivers and users."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codecfleet.cluster.ray import ray_directory
from codecfleet.errors import FleetUnavailable


@pytest.mark.parametrize(
    ("name", "words"), [("x" * 40, "longer than 25 characters"), (os.fsdecode(b"\xff"), "is not UTF-8")]
)
def test_a_base_that_ray_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    """A chosen place is refused if its path leaves no room for names of sockets, or if Ray cannot store the path."""
    monkeypatch.setenv("RAY_TMPDIR", f"/{name}")
    with pytest.raises(FleetUnavailable, match=words) as caught:
        ray_directory.make_directory()
    assert "RAY_TMPDIR" in caught.value.next_step


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only place for directories."""
    monkeypatch.setattr(ray_directory, "_bases", lambda: [tmp_path])
    monkeypatch.setattr(ray_directory, "_BASE_LENGTH_MAX", 4096)
    return tmp_path


def aged(directory: Path) -> Path:
    """Make a directory one hour old."""
    os.utime(directory, (time.time() - 3600,) * 2)
    return directory


def left(*, locked: bool) -> tuple[Path, int]:
    """Make an old directory, and return it with its lock."""
    directory, lock = ray_directory.make_directory()
    if not locked:
        fcntl.flock(lock, fcntl.LOCK_UN)
    return aged(directory), lock


def test_directories_of_the_dead_are_swept(base: Path) -> None:
    """A directory whose driver has died is removed; one whose driver lives, or that is new, stays."""
    (_, dead_lock), (alive, alive_lock) = left(locked=False), left(locked=True)
    new, new_lock = ray_directory.make_directory()
    os.close(new_lock)
    ray_directory.sweep()
    assert sorted(base.iterdir()) == sorted([alive, new])
    os.close(dead_lock)
    os.close(alive_lock)


def test_a_strangers_directory_is_left_alone(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's directory is neither opened nor removed, whether it is locked or not."""
    planted, lock = left(locked=False)
    stranger = planted.stat().st_uid + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: stranger)
        patch.setattr(os, "open", lambda *_, **__: pytest.fail("it was opened"))
        ray_directory.sweep()
    assert list(base.iterdir()) == [planted]
    os.close(lock)


@pytest.fixture
def lease_notice() -> Iterator[None]:
    """Ignore the signal with which the kernel asks for a file under a lease."""
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, former)


@pytest.mark.usefixtures("lease_notice")
def test_no_lock_is_waited_for(base: Path) -> None:
    """A lock file that is a link, or under a lease (for which the kernel would wait 45 s), causes no delay."""
    leased, lock = left(locked=False)
    linked, other = left(locked=False)
    os.close(other)
    (linked / "lock").unlink()
    (linked / "lock").symlink_to(leased / "lock")
    aged(linked)
    os.close(lock)
    lock = os.open(leased / "lock", os.O_RDONLY)
    fcntl.fcntl(lock, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    ray_directory.sweep()
    assert sorted(base.iterdir()) == sorted([leased, linked])
    os.close(lock)
