# ruff: noqa: ASYNC240 - nothing else runs in the test's loop
"""A job whose driver dies after the job has published its output, and before the queue has the job's end."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet import Queue, QueueState
from tests.sweeps import swept

from .local_jobs import film

__all__ = ["film"]

LEASE_S = 3
_DIES = """
import os, signal, sys
from codecfleet.cli.app import run
from codecfleet.cluster.queue.store import JobStore

JobStore.end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run(sys.argv[1:])
"""
OPTIONS = {
    "transcode": ["transcode", "--preset", "1", "--scale", "160x120", "--end", "2"],
    "elsewhere": ["transcode", "--preset", "1", "--scale", "160x120", "--end", "2", "--work", "work"],
    "ladder": ["ladder", "--preset", "own.toml"],
    "stills": ["stills", "--every", "1", "--end", "2"],
}
PRESET = (
    'codec = "h264"\npreset = 1\nkeyframe_interval = "0.5"\n[[rendition]]\nname = "low"\nscale = "16p"\nquality = 30\n'
)


def run_driver(place: Path, program: list[str]) -> int:
    """Run a driver until it is idle, and return its exit code."""
    options = ["driver", "--queue", str(place), "--lease-seconds", str(LEASE_S), "--idle-minutes", "0"]
    return subprocess.run([sys.executable, "-P", *program, *options], check=False, timeout=100).returncode


@pytest.mark.parametrize("kind", swept(list(OPTIONS)))
async def test_a_published_job_is_done_at_its_next_attempt(kind: str, film: Path, tmp_path: Path) -> None:
    """The next attempt finds the record of the published output, and the driver removes it after the end."""
    out, place = tmp_path / "out", tmp_path / "queue.sqlite"
    output = out / ("o.mp4" if OPTIONS[kind][0] == "transcode" else "folder")
    command, *options = OPTIONS[kind]
    (tmp_path / "own.toml").write_text(PRESET)
    async with Queue(place, starts_driver=False) as queue:
        await queue.submit([command, *options, str(film), str(output)], job_id="a", folder=tmp_path)
        assert run_driver(place, ["-c", _DIES]) == -signal.SIGKILL
        assert output.exists()
        before = output.stat()
        assert (await queue.get("a")).state is QueueState.RUNNING
        await asyncio.sleep(LEASE_S)
        run_driver(place, ["-m", "codecfleet"])
        job = await queue.get("a")
    assert (job.state, job.attempt, job.losses, job.message) == (QueueState.DONE, 2, 1, "")
    assert [each.name for each in out.iterdir()] == [output.name]
    assert not list(tmp_path.glob("work/*"))
    if command == "transcode":
        assert output.stat().st_mtime_ns == before.st_mtime_ns
