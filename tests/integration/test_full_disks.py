"""Little space for outputs, work folders, temporary files or shared memory."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .local_jobs import LIMIT_S

PROGRAM = """
import sys
from codecfleet import Fleet
from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.testing import LocalPool
from codecfleet.jobs.source.source import read_source
sys.exit(run(sys.argv[1:], Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))))
"""
"""Runs the program on threads of its own process."""


def can_mount() -> bool:
    """Return whether this user may mount a small disk."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def mounted(
    place: Path | str, size: str, *command: str | Path, first: str = "true"
) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """Run a command with a small disk of that size at a place that only the command sees.

    The result's output has what the command printed, then its exit code and the files that are left there.
    """
    if not can_mount():
        pytest.skip("only root may mount a small disk")
    script = f'mount -t tmpfs -o size={size} tmpfs {place}; {first}; "$@"; echo "code $?"; ls -A {place}'
    whole = ["unshare", "-m", "sh", "-c", script, "sh", *map(str, command)]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=5 * LIMIT_S, check=False)
    return done.stdout.splitlines(), done


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clip whose lossless copy takes more than half a megabyte."""
    clip = Clip(times=constant_times(60), width=160, height=96, options=(("qp", "0"), ("preset", "ultrafast")))
    return make_clip(tmp_path / "source.mp4", clip)


@pytest.mark.parametrize(
    ("size", "output", "words"),
    swept(
        [
            ("900k", "{disk}/o.mp4", ("output.mp4",)),
            ("64k", "{disk}/o.mp4", ("segment-",)),
            ("100k", "memory://out/o.mp4", ("{disk}", "another TMPDIR")),  # work on a remote output is in TMPDIR
        ]
    ),
)
def test_a_full_disk_leaves_nothing_behind(
    size: str, output: str, words: tuple[str, ...], source: Path, tmp_path: Path
) -> None:
    """If a payload, the output or a temporary file does not fit, one line says so and the disk is left empty."""
    disk = tmp_path / "disk"
    disk.mkdir()
    asked = ("transcode", "--no-journal", "--quality", "0", "--preset", "1", source, output.format(disk=disk))
    said, done = mounted(disk, size, "env", f"TMPDIR={disk}", sys.executable, "-c", PROGRAM, *asked)
    assert said == ["code 5"], done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("codecfleet: error: no space left at ")
    assert all(word.format(disk=disk) in last for word in words)
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_already(source: Path, tmp_path: Path) -> None:
    """If not even the owner file of the work folder fits, one line says so and the folder is removed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    asked = (sys.executable, "-c", PROGRAM, "transcode", source, disk / "o.mp4")
    said, done = mounted(disk, "4k", *asked, first=f"head -c 4096 /dev/zero > {disk}/all")
    assert said == ["code 5", "all"], done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"codecfleet: error: no space left at {disk}. Free some space")


@pytest.mark.ray
@pytest.mark.slow
def test_tiny_shared_memory_is_no_obstacle(source: Path, tmp_path: Path) -> None:
    """A whole job runs with 64 KiB in /dev/shm, less than a plain container has."""
    command = [sys.executable, "-m", "codecfleet", "transcode", "--quiet", "--preset", "1", source, tmp_path / "o.mp4"]
    said, done = mounted("/dev/shm", "64k", *command)  # noqa: S108 - where Linux keeps it
    assert "code 0" in said, done.stderr
    assert (tmp_path / "o.mp4").stat().st_size > 0


RESULTS = """
import asyncio, sys
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.errors import CodecfleetError
from codecfleet.testing import works

async def main():
    async with default_pool("local", 2) as pool:
        async def ask(label, mib):
            try:
                return (await pool.submit(works.MakeArray(job="j", label=label, length=mib << 20))).nbytes >> 20
            except CodecfleetError as error:
                return f"{type(error).__name__}: {error}"
        for mib in (60, 160, 1):
            print(mib, set(await asyncio.gather(*(ask(str(n), mib) for n in range(4)))))

asyncio.run(main())
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_full_object_store_and_a_full_disk_to_spill_to() -> None:
    """Results wait for space in the store; one that fits neither in it nor on disk fails, and others continue."""
    ray = ("env", "RAY_TMPDIR=/mnt", "CODECFLEET_RAY=first", sys.executable, "-c", RESULTS)
    (*answers, code), done = mounted("/mnt", "60m", *ray, first="mount -t tmpfs -o size=140m tmpfs /dev/shm")
    assert code == "code 0", done.stderr
    assert (answers[0], answers[2]) == ("60 {60}", "1 {1}")
    assert "ObjectStoreFull: Ray has no room for the result of " in answers[1]
    assert "RAY_TMPDIR" in answers[1]
