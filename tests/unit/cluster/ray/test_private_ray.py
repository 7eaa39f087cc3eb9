"""The parts of the embedded Ray that need no Ray: sizes, environment, files, and the undertaker."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from codecfleet.cluster.ray import orphan_reaper, private_ray
from codecfleet.cluster.ray.listening import listening_addresses
from codecfleet.errors import FleetUnavailable

MIB = 1 << 20


@pytest.mark.parametrize(
    ("memory_mib", "shared_mib", "store_mib"),
    [
        (24_000, 12_000, 512),
        (2_000, 1_000, 250),
        (24_000, 256, 192),
        (24_000, 64, 512),  # too small to be of use: a file is mapped instead
        (24_000, 0, 512),
        (512, 256, 80),
    ],
)
def test_the_store_is_modest(memory_mib: int, shared_mib: int, store_mib: int) -> None:
    """The object store takes an eighth of the memory, 512 MiB at most, and fits into shared memory."""
    assert private_ray._store_bytes(memory_mib * MIB, shared_mib * MIB) == store_mib * MIB


def test_the_environment_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are as before afterwards: those that were set, and those that were not."""
    monkeypatch.setenv("CF_TEST_SET", "before")
    monkeypatch.delenv("CF_TEST_UNSET", raising=False)
    with private_ray.environment({"CF_TEST_SET": "inside", "CF_TEST_UNSET": "inside"}):
        assert os.environ["CF_TEST_SET"] == os.environ["CF_TEST_UNSET"] == "inside"
    assert os.environ["CF_TEST_SET"] == "before"
    assert "CF_TEST_UNSET" not in os.environ


def test_a_base_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chosen place whose path leaves no room for socket names is refused with what to do."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 40)))
    with pytest.raises(FleetUnavailable, match="longer than the 25 characters") as caught:
        private_ray._make_directory()
    assert "RAY_TMPDIR" in caught.value.next_step


def test_directories_of_the_dead_are_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory whose driver died is removed by the next; one whose driver lives, or that is new, stays."""
    monkeypatch.setattr(private_ray, "_bases", lambda: [tmp_path])
    monkeypatch.setattr(private_ray, "_BASE_LENGTH_MAX", 4096)
    old = time.time() - 3600
    (dead, dead_lock), (alive, alive_lock), (new, new_lock) = (private_ray._make_directory() for _ in range(3))
    for directory in (dead, alive):
        os.utime(directory, (old, old))
    for lock in (dead_lock, new_lock):
        os.close(lock)
    private_ray._sweep()
    assert sorted(tmp_path.iterdir()) == sorted([alive, new])
    os.close(alive_lock)


def hire(directory: Path) -> "subprocess.Popen[bytes]":
    """Start the undertaker as a driver does."""
    return private_ray._start_orphan_reaper(directory)


@pytest.mark.parametrize("word", [b"", b"closed in good order\n"])
def test_the_orphan_reaper_ends_who_writes_there(tmp_path: Path, word: bytes) -> None:
    """A driver that ends without a word takes along whoever has a file open in its directory, and nobody else."""
    grave = tmp_path / "grave"
    grave.mkdir()
    with (grave / "log").open("wb") as log, (tmp_path / "log").open("wb") as elsewhere:
        sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
        inside, outside = subprocess.Popen(sleeper, stdout=log), subprocess.Popen(sleeper, stdout=elsewhere)
    with hire(grave) as hired, inside, outside:
        hired.communicate(word)
        ended, spared = inside.poll() is not None or _ends_soon(inside), outside.poll() is None
        inside.kill()
        outside.kill()
    assert ended == (word == b"")
    assert spared
    assert grave.exists() == (word != b"")


def _ends_soon(process: "subprocess.Popen[bytes]") -> bool:
    try:
        return process.wait(0.2) is not None
    except subprocess.TimeoutExpired:
        return False


def test_nobody_there_is_no_trouble(tmp_path: Path) -> None:
    """Looking for processes in a directory that nobody uses, or that is gone, ends none."""
    orphan_reaper.end_processes_in(tmp_path)
    orphan_reaper.end_processes_in(tmp_path / "gone")


def test_the_signal_structure_is_the_c_librarys() -> None:
    """``struct sigaction`` has the size of 64-bit Linux, and reading it finds the handler that Python set."""
    assert ctypes.sizeof(private_ray._SigAction) == 152
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with private_ray.sigterm_untouched():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        found = private_ray._SigAction()
        private_ray._sigaction(None, ctypes.byref(found))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert found.handler == int(signal.SIG_IGN)


@pytest.mark.parametrize("address", ["127.0.0.1", str(IPv4Address(0)), "::1", "::"])
def test_listening_addresses_are_read(address: str) -> None:
    """The addresses of a process's listening sockets are known, and not those of sockets that are closed."""
    me = [os.getpid()]
    before = listening_addresses(me)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        assert listening_addresses(me) == before
        listener.listen()
        assert listening_addresses(me) == before | {ip_address(address)}
    assert listening_addresses(me) == before
