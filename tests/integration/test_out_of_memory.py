"""In a control group with too little memory, the worker is killed, and the error names memory."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

CGROUP = Path("/sys/fs/cgroup")
LIMIT_BYTES = 900 << 20
END_S = 20
"""A worker that is starting ends only after its start, which takes less than a second here."""


@pytest.fixture
def group() -> Iterator[Path]:
    """A new control group with little memory; the test is skipped if none may be made."""
    is_version_2 = (CGROUP / "cgroup.controllers").is_file()
    folder = (CGROUP if is_version_2 else CGROUP / "memory") / f"codecfleet-test-{secrets.token_hex(4)}"
    limit = "memory.max" if is_version_2 else "memory.limit_in_bytes"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    until_s = time.monotonic() + END_S
    while left := (folder / "cgroup.procs").read_text().split():
        assert time.monotonic() < until_s, f"processes {left} are left"
        time.sleep(0.05)
    folder.rmdir()


def run_in(group: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python as a member of the group."""
    script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


PROGRAM = """
import asyncio
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.errors import WorkerLost
from codecfleet.testing import works

async def main():
    async with default_pool(None, 1) as pool:
        for work in (works.Hoard(job="j", label="hoard", length=2 << 30), works.Crash(job="j", label="crash")):
            try:
                await pool.submit(work)
            except WorkerLost as error:
                print(type(error).__name__, error.message)

asyncio.run(main())
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("order", ["", "first"])
def test_a_worker_killed_for_memory_is_named(order: str, group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that the kernel's OOM killer ended is reported as such; the next one, which just dies, is not."""
    monkeypatch.setenv("CODECFLEET_RAY", order)
    done = run_in(group, "-c", PROGRAM)
    first, second = done.stdout.splitlines()
    assert first.startswith("WorkerOutOfMemory worker ")
    assert "OOM-killed while running" in first
    assert second.startswith("WorkerLost worker ")


@pytest.mark.ray
@pytest.mark.slow
def test_a_job_that_never_fits_its_group_is_refused(group: Path, tmp_path: Path) -> None:
    """The job ends before any segment starts, with exit code 4 and both figures, because the group's limit counts."""
    clip = Clip(times=constant_times(60), width=3840, height=2160, options=(("preset", "ultrafast"),))
    source = make_clip(tmp_path / "film.mp4", clip)
    done = run_in(group, "-m", "codecfleet", "transcode", "--preset", "7", source, tmp_path / "o.mp4")
    assert done.returncode == 4, done.stderr
    assert "GB of memory, and this machine has 0." in done.stderr.splitlines()[-1]
