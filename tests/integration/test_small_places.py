"""Jobs with little room where temporary files or shared memory lie."""

import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .test_limits import LIMIT_S, PROGRAM, can_mount


def mounted(place: Path | str, size: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with a disk of that size at a place, which only it sees; then list what is left there."""
    if not can_mount():
        pytest.skip("only root may mount a small disk")
    script = f'mount -t tmpfs -o size={size} tmpfs {place}; "$@"; echo "code $?"; ls -A {place}'
    whole = ["unshare", "-m", "sh", "-c", script, "sh", *map(str, command)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=5 * LIMIT_S, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clip whose lossless copy takes over half a megabyte."""
    clip = Clip(times=constant_times(60), width=160, height=96, options=(("qp", "0"), ("preset", "ultrafast")))
    return make_clip(tmp_path / "source.mp4", clip)


def test_a_full_place_for_temporary_files(source: Path, tmp_path: Path) -> None:
    """A remote output's work lies in TMPDIR: where that is full the line names it, and nothing stays there."""
    (tmp_path / "tmp").mkdir()
    environment = ["env", f"TMPDIR={tmp_path / 'tmp'}"]
    transcode = ["transcode", "--no-journal", "--quality", "0", "--preset", "1", source, "memory://out/o.mp4"]
    done = mounted(tmp_path / "tmp", "100k", *environment, sys.executable, "-c", PROGRAM, *transcode)
    assert done.stdout == "code 5\n", done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"codecfleet: error: no space left at {tmp_path / 'tmp'}")
    assert "another TMPDIR" in last


@pytest.mark.ray
@pytest.mark.slow
def test_tiny_shared_memory_is_no_obstacle(source: Path, tmp_path: Path) -> None:
    """With 64 KiB in /dev/shm, less than a plain container has, a whole job runs."""
    command = [sys.executable, "-m", "codecfleet", "transcode", "--quiet", "--preset", "1", source, tmp_path / "o.mp4"]
    done = mounted("/dev/shm", "64k", *command)  # noqa: S108 - where Linux keeps it
    assert "code 0" in done.stdout, done.stderr
    assert (tmp_path / "o.mp4").stat().st_size > 0


RESULTS = """
import asyncio, sys
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.errors import CodecfleetError
from codecfleet.testing import works

async def main():
    async with default_pool(sys.argv[1] if sys.argv[1:] else "local", 2) as pool:
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
    """More results than the store holds take turns; one that fits neither it nor the disk fails, and others go on."""
    script = 'mount -t tmpfs -o size=140m tmpfs /dev/shm; exec env RAY_TMPDIR=/mnt CODECFLEET_RAY=first "$@"'
    done = mounted("/mnt", "60m", "sh", "-c", script, "sh", sys.executable, "-c", RESULTS)
    *answers, code = done.stdout.splitlines()
    assert code == "code 0", done.stderr
    assert (answers[0], answers[2]) == ("60 {60}", "1 {1}")
    assert "ObjectStoreFull: Ray has no room for the result of " in answers[1]
    assert "RAY_TMPDIR" in answers[1]
