"""Processes that are killed in the middle of a job, and what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from tests.sweeps import swept

from .limit_jobs import LIMIT_S, film, spec_of, transcode

__all__ = ["film"]


# --- Sudden deaths, in the real thing ---


@contextmanager
def program(*arguments: object, env: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[str]]:
    """Run the real program in a group of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "codecfleet", "transcode", "--json", *(str(a) for a in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**env, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], kind: str) -> None:
    """Read events until one is of this kind."""
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == kind:
            return
    pytest.fail(f"no {kind}: {process.stderr.read() if process.stderr else ''}")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return every process below the program."""
    return list(psutil.Process(process.pid).children(recursive=True))


def gone(processes: list[psutil.Process], within_s: float = 10) -> bool:
    """Wait until all of them have ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            return True
        time.sleep(0.05)
    return False


def addresses(processes: list[psutil.Process]) -> set[str]:
    """Return where they listen."""
    return {c.laddr.ip for p in processes for c in p.net_connections() if c.status == psutil.CONN_LISTEN}


def long_job(film: Path, name: str) -> list[object]:
    """Return the arguments of a job that takes a few seconds."""
    return [*("--segment-seconds", "1", "--preset", "4", "--scale", "480x270"), film, film.parents[1] / "out" / name]


@pytest.mark.ray
@pytest.mark.parametrize(("order", "worker"), swept([("", "cluster.worker.program"), ("first", "RayWorker")]))
def test_a_killed_worker_changes_nothing(order: str, worker: str, film: Path) -> None:
    """With a worker process killed in the middle, the job finishes, and the output is the same, byte for byte."""
    out = film.parents[1] / "out"
    whole = transcode(spec_of(film, out / "whole.mp4", segment_s=Fraction(1), scale=(480, 270)))
    with program(*long_job(film, "killed.mp4"), env={**os.environ, "CODECFLEET_RAY": order}) as process:
        wait_for(process, "segment_finished")
        workers = [p for p in family(process) if worker in " ".join(p.cmdline())]
        assert workers
        assert addresses(family(process)) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        workers[0].kill()
        rest, err = process.communicate(timeout=60)
    done = json.loads(rest.splitlines()[-1])
    assert (process.returncode, done["event"]) == (0, "done"), err
    assert done["report"]["proof"]["output_sha256"] == whole.proof.output_sha256
    assert (out / "killed.mp4").read_bytes() == (out / "whole.mp4").read_bytes()
    assert len(list(out.iterdir())) == 2


@pytest.mark.ray
def test_a_killed_program(film: Path) -> None:
    """Killed outright, the program leaves its hidden work folder at most, and no process."""
    out = film.parents[1] / "out"
    with program(*long_job(film, "o.mp4")) as process:
        wait_for(process, "segment_finished")
        below = family(process)
        process.kill()
        process.wait()
    assert below
    assert gone(below)
    assert [path.name[: len(".o.mp4.")] for path in out.iterdir()] == [".o.mp4."]


@pytest.mark.ray
@pytest.mark.parametrize("moment", swept(["segment_finished", "planned"]))
def test_ctrl_c_in_the_middle(moment: str, film: Path) -> None:
    """Ctrl-C, which the whole process group gets, ends it; only what the job goes on from is left."""
    out = film.parents[1] / "out"
    with program(*long_job(film, "o.mp4")) as process:
        wait_for(process, moment)
        below = family(process)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted. ")
    assert "Traceback" not in err
    assert gone(below)
    assert ("codecfleet resume" in err) == bool(list(out.iterdir()))
    assert [path.name for path in out.iterdir()] in ([], [".o.mp4.codecfleet"])
