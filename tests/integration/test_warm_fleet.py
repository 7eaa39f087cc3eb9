"""A warm fleet with real processes: its use by programs, its death, and what it leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from .local_jobs import film
from .test_killed_programs import gone

__all__ = ["film"]

SHORT = ("--preset", "1", "--segment-seconds", "2")
ABORTED_S = 60


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """An environment with its own runtime directory; a fleet that is still up at the end is killed."""
    runtime = tmp_path / "run"
    runtime.mkdir()
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("CODECFLEET_WARM")
    try:
        yield env
    finally:
        command(env, "down")


def command(env: Mapping[str, str], *arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the real program to its end."""
    words = [sys.executable, "-m", "codecfleet", *map(str, arguments)]
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=ABORTED_S, check=False)


def up(env: Mapping[str, str], *options: str, cwd: Path | None = None) -> psutil.Process:
    """Bring a fleet up; return its process."""
    done = command(env, "up", "--json", *options, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return psutil.Process(json.loads(done.stdout)["process"])


@pytest.mark.slow
def test_it_serves_programs_wherever_they_stand(film: Path, tmp_path: Path, places: Mapping[str, str]) -> None:
    """Programs in other folders find the fleet, say so, and write the same bytes as without it; nothing is left."""
    gone_folder = tmp_path / "gone"
    gone_folder.mkdir()
    fleet = up(places, "--workers", "2", cwd=gone_folder)
    gone_folder.rmdir()
    assert up(places) == fleet
    below = [fleet, *fleet.children(recursive=True)]
    report = tmp_path / "report.json"
    done = command(places, "transcode", "film.mp4", "../out/a.mp4", "--report", report, *SHORT, cwd=film.parent)
    assert done.returncode == 0, done.stderr
    assert f"of the warm fleet (process {fleet.pid})" in done.stderr
    assert json.loads(report.read_text())["warm_fleet"] == fleet.pid
    assert [fleet, *fleet.children(recursive=True)] == below
    never = {**places, "CODECFLEET_WARM": "never"}
    alone = command(never, "transcode", "film.mp4", "../out/b.mp4", *SHORT, cwd=film.parent)
    assert (alone.returncode, "warm fleet" in alone.stderr) == (0, False)
    out = film.parents[1] / "out"
    assert (out / "a.mp4").read_bytes() == (out / "b.mp4").read_bytes()
    assert command(places, "down").stdout == f"the warm fleet was stopped: process {fleet.pid}\n"
    assert gone(below, within_s=1)
    assert list(Path(places["XDG_RUNTIME_DIR"]).iterdir()) == []
    assert command(places, "down").stdout == "no warm fleet was up\n"


@pytest.mark.slow
def test_one_that_hangs_keeps_no_job_from_starting(film: Path, places: Mapping[str, str]) -> None:
    """A stopped fleet does not answer, so programs start their own workers, and `down` kills it."""
    fleet, out = up(places), film.parents[1] / "out"
    below = fleet.children(recursive=True)
    fleet.suspend()
    try:
        done = command(places, "transcode", film, out / "a.mp4", *SHORT)
        assert (done.returncode, "warm fleet" in done.stderr) == (0, False)
        assert command(places, "down").returncode == 0
        assert gone([fleet, *below])
        assert list(Path(places["XDG_RUNTIME_DIR"]).iterdir()) == []
    finally:
        with suppress(psutil.NoSuchProcess):
            fleet.kill()
