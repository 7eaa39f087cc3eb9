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
