"""Processes that die in the middle of a job: the cost, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from tests.live_processes import is_live
from tests.sweeps import swept

from .local_jobs import LIMIT_S, film, spec_of, transcode
from .test_embedded import LOOPBACK, alive, places, run, written

__all__ = ["film", "places"]

pytestmark = pytest.mark.ray

HOST = "codecfleet.cluster.fleet.host"
"""Part of the command line of the process connected to Ray."""
OWN_WORKER = "cluster.worker.program"
END_S = 5  # of the film
FLEET = """
import logging, sys, threading
from codecfleet.cluster.fleet.default import default_pool

def state():
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    levels = {name: logging.getLogger(name).level for name in logging.root.manager.loggerDict}
    return dict(os.environ), handlers, dispositions(), levels, logging.root.level, os.getcwd()

def descriptors():
    return sorted(os.listdir("/proc/self/fd"))
"""


@contextmanager
def program(*arguments: object, env: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[str]]:
    """Run ``codecfleet transcode --json`` in a process group of its own."""
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
    """Read events until one of this kind comes."""
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == kind:
            return
    pytest.fail(f"no {kind}: {process.stderr.read() if process.stderr else ''}")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return every process below the program."""
    return list(psutil.Process(process.pid).children(recursive=True))


def gone(processes: list[psutil.Process], within_s: float = 10) -> bool:
    """Wait until all these processes have ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not any(map(is_live, processes)):
            return True
        time.sleep(0.05)
    return False


def left(pids: list[int], places: Mapping[str, str]) -> tuple[list[int], list[Path]]:
    """Return which of these processes and files still exist after some seconds."""
    until = time.monotonic() + 10
    while (alive(pids) or written(places)) and time.monotonic() < until:
        time.sleep(0.05)
    return alive(pids), written(places)


def long_job(film: Path, name: str) -> list[object]:
    """Return the arguments of a job that takes a few seconds."""
    options = ("--segment-seconds", "1", "--preset", "4", "--scale", "320x180", "--end", str(END_S), "--workers", "2")
    return [*options, film, film.parents[1] / "out" / name]


@pytest.mark.parametrize("order", swept(["", "first"]))
def test_nothing_of_ray_in_the_users_process(order: str, places: Mapping[str, str]) -> None:
    """A running fleet changes no import, handler, variable or log level, and leaves no descriptor or file.

    If work has a class that only the user's process can import, its result has such a class too.
    """
    facts, done = run(
        """
        async def main():
            before, files = state(), descriptors()
            pool = default_pool("local", 2)
            async with pool:
                process = await pool.submit(works.Ask(job="j", label="a"))
                try:
                    await pool.submit(works.Crash(job="j", label="b"))
                except Exception as error:
                    lost = type(error).__name__
                array = await pool.submit(works.MakeArray(job="j", label="c", length=1 << 20))
                during, processes = state(), tree()
                addresses = listening([psutil.Process(), *processes])
            left = [p.pid for p in processes if p.is_running() and p.status() != "zombie"]
            tell(same=before == during == state(), files=descriptors() == files, left=left, lost=lost,
                 addresses=addresses, elsewhere=process != os.getpid(), writeable=array.flags.writeable,
                 ray=[name for name in sys.modules if name.split(".")[0] == "ray"], notes=pool.state.notes)
        asyncio.run(main())
        """,
        {**places, "CODECFLEET_RAY": order},
        first=FLEET,
    )
    assert set(facts.pop("addresses")) <= LOOPBACK
    assert facts == {
        "same": True,
        "files": True,
        "left": [],
        "lost": "WorkerLost",
        "elsewhere": True,
        "writeable": False,
        "ray": [],
        "notes": [],
    }
    assert written(places) == []
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("order", "victim"),
    swept(
        [
            ("", OWN_WORKER),
            ("", HOST),
            ("first", "RayWorker"),
            ("first", "raylet"),
            ("first", "gcs_server"),
            ("first", HOST),
        ],
        is_slow=lambda case: case[0] == "first",
    ),
)
def test_a_process_dies_in_the_middle(order: str, victim: str, film: Path) -> None:
    """If a worker, the host or one of Ray's processes is killed, the output is the same, and nothing is left."""
    out = film.parents[1] / "out"
    whole = transcode(spec_of(film, out / "whole.mp4", segment_s=Fraction(1), scale=(320, 180), end_s=Fraction(END_S)))
    with program(*long_job(film, "killed.mp4"), env={**os.environ, "CODECFLEET_RAY": order}) as process:
        wait_for(process, "segment_finished")
        below = family(process)
        listening = {c.laddr.ip for p in below for c in p.net_connections() if c.status == psutil.CONN_LISTEN}
        assert listening <= LOOPBACK
        next(p for p in below if p.name() == victim or victim in " ".join(p.cmdline())).kill()
        rest, err = process.communicate(timeout=120)
    done = json.loads(rest.splitlines()[-1])
    assert (process.returncode, done["event"]) == (0, "done"), err
    assert done["report"]["proof"]["output_sha256"] == whole.proof.output_sha256
    assert (out / "killed.mp4").read_bytes() == (out / "whole.mp4").read_bytes()
    replaced = sum("was replaced during the run" in warning["message"] for warning in done["report"]["warnings"])
    assert replaced == (victim not in {OWN_WORKER, "RayWorker"})
    assert len(list(out.iterdir())) == 2
    assert gone(below)


@pytest.mark.parametrize("order", swept(["", "first"]))
def test_a_killed_program(order: str, film: Path, places: Mapping[str, str]) -> None:
    """After SIGKILL the program leaves no process, and no file except its hidden work folder."""
    env = {**places, "TMPDIR": places["RAY_TMPDIR"], "CODECFLEET_RAY": order}
    with program(*long_job(film, "o.mp4"), env=env) as process:
        wait_for(process, "segment_finished")
        pids = [each.pid for each in family(process)]
        process.kill()
        process.wait()
    assert len(pids) >= (5 if order else 2)
    assert left(pids, places) == ([], [])
    assert [path.name for path in (film.parents[1] / "out").iterdir()] == [".o.mp4.codecfleet"]


@pytest.mark.parametrize(
    ("moment", "presses"), swept([("segment_finished", 2), ("segment_finished", 1), ("planned", 1)])
)
def test_ctrl_c_in_the_middle(moment: str, presses: int, film: Path, places: Mapping[str, str]) -> None:
    """Ctrl-C reaches the whole process group and ends the job; only the work that a later run resumes is left."""
    out = film.parents[1] / "out"
    with program(*long_job(film, "o.mp4"), env={**places, "TMPDIR": places["RAY_TMPDIR"]}) as process:
        wait_for(process, moment)
        pids = [each.pid for each in family(process)]
        for _ in range(presses):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted.")
    assert "Traceback" not in err
    assert left(pids, places) == ([], [])
    assert [path.name for path in out.iterdir()] == [".o.mp4.codecfleet"] * bool(list(out.iterdir()))
    assert presses == 2 or ("codecfleet resume" in err) == bool(list(out.iterdir()))


def test_every_host_dies(film: Path) -> None:
    """A fleet that loses one host after another fails with one line and leaves nothing."""
    out = film.parents[1] / "out"
    with program(film, out / "o.mp4") as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            for child in psutil.Process(process.pid).children():
                with suppress(psutil.Error):  # it has just ended
                    if HOST in " ".join(child.cmdline()):
                        child.kill()
            time.sleep(0.05)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 5
    (line,) = err.splitlines()
    assert "the process connected to Ray ended 4 times in a row" in line
    assert list(out.iterdir()) == []
