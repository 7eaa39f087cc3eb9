"""Parts of the private Ray that need no Ray: sizes, environment, files, and the orphan reaper."""

import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from types import ModuleType

import pytest

from codecfleet.actors.process.running import Running
from codecfleet.cluster.ray import object_store, orphan_reaper, private_ray
from codecfleet.cluster.ray.private_ray import listening_addresses
from codecfleet.errors import FleetUnavailable

MIB = 1 << 20


@pytest.mark.parametrize(
    ("memory_mib", "shared_mib", "store_mib"),
    [
        (24_000, 12_000, 512),
        (2_000, 1_000, 250),
        (24_000, 256, 192),
        (24_000, 64, 512),  # too small to be useful, so a file is mapped instead
        (24_000, 0, 512),
        (512, 256, 80),
    ],
)
def test_the_store_is_modest(memory_mib: int, shared_mib: int, store_mib: int) -> None:
    """The object store gets an eighth of the memory, at most 512 MiB, and fits into shared memory."""
    assert object_store._store_bytes(memory_mib * MIB, shared_mib * MIB) == store_mib * MIB


def hire(directory: Path) -> Running:
    """Start the orphan reaper as a driver does."""
    return private_ray._start_orphan_reaper(directory)


@pytest.mark.parametrize("word", [b"", b"closed in good order\n"])
def test_the_orphan_reaper_ends_who_writes_there(tmp_path: Path, word: bytes) -> None:
    """If a driver is killed, exactly the processes with a file open in its directory are ended."""
    grave = tmp_path / "grave"
    grave.mkdir()
    with (grave / "log").open("wb") as log, (tmp_path / "log").open("wb") as elsewhere:
        sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
        inside, outside = subprocess.Popen(sleeper, stdout=log), subprocess.Popen(sleeper, stdout=elsewhere)
    hired = hire(grave)
    with inside, outside:
        with hired.end as end:
            end.sendall(word)
        hired.ended()
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


def test_a_folder_without_processes(tmp_path: Path) -> None:
    """An empty or missing directory ends no process."""
    orphan_reaper.end_processes_in(tmp_path)
    orphan_reaper.end_processes_in(tmp_path / "gone")


@pytest.mark.parametrize("address", ["127.0.0.1", str(IPv4Address(0)), "::1", "::"])
def test_listening_addresses_are_read(address: str) -> None:
    """The addresses on which a process listens are found; closed sockets and sockets that do not listen are not."""
    me = [os.getpid()]
    before = listening_addresses(me)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        assert listening_addresses(me) == before
        listener.listen()
        assert listening_addresses(me) == before | {ip_address(address)}
    assert listening_addresses(me) == before


@pytest.mark.parametrize("address", [None, "127.0.0.1", "10.0.0.7", "::"])
def test_an_unknown_ray_must_keep_to_loopback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str | None
) -> None:
    """A Ray started by public calls is refused if one of its processes listens beyond this machine."""
    asked: dict[str, object] = {}

    def init(**options: object) -> None:
        asked.update(options, RAY_TMPDIR=os.environ["RAY_TMPDIR"])

    ray = ModuleType("ray")
    vars(ray).update(init=init, __version__="2.61.0")
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = frozenset() if address is None else frozenset({ip_address(address)})
    monkeypatch.setattr(private_ray, "listening_addresses", lambda _: found)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    if address in (None, "127.0.0.1"):
        private_ray._start_publicly({"address": "local"}, tmp_path, imported_before=False)
    else:
        with pytest.raises(FleetUnavailable, match=f"Ray 2.61.0 listens on {address}, not on loopback") as caught:
            private_ray._start_publicly({"address": "local"}, tmp_path, imported_before=False)
        assert "2.60" in caught.value.next_step
    assert asked == {"address": "local", "RAY_TMPDIR": str(tmp_path)}
    assert "RAY_TMPDIR" not in os.environ
