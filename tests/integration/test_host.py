"""A fleet's host: what the user's process keeps, what the deaths of Ray's processes cost, and what is left."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from tests.sweeps import swept

from .limit_jobs import LIMIT_S, film, spec_of, transcode
from .test_embedded import alive, places, run, script, written
from .test_killed_programs import family, gone, long_job, program, wait_for

__all__ = ["film", "places"]

pytestmark = pytest.mark.ray

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


def is_host(process: psutil.Process) -> bool:
    """Return whether this is the process that holds Ray."""
    return "codecfleet.cluster.fleet.host" in " ".join(process.cmdline())


@pytest.mark.parametrize("order", swept(["", "first"]))
def test_nothing_of_ray_in_the_users_process(order: str, places: Mapping[str, str]) -> None:
    """No import, handler, variable or log level changes while a fleet runs; afterwards no descriptor or file is left.

    Work of classes that only the user's process can import gives results of such classes too.
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
    addresses = set(facts.pop("addresses"))
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
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


@pytest.mark.parametrize(("order", "at_least"), swept([("", 2), ("first", 5)]))
def test_a_killed_client_leaves_no_process(order: str, at_least: int, places: Mapping[str, str]) -> None:
    """After a SIGKILL of the user's process its host is gone within seconds, with its worker or all of Ray."""
    command = script(
        """
        async def main():
            pool = default_pool("local", 1)
            await pool.start()
            tell(pids=[p.pid for p in tree()])
            await asyncio.sleep(60)
        asyncio.run(main())
        """,
        FLEET,
    )
    with subprocess.Popen(
        command, env={**places, "CODECFLEET_RAY": order}, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        pids = json.loads(client.stdout.readline())["pids"]
        client.send_signal(signal.SIGKILL)
    assert len(pids) >= at_least
    assert left(pids, places) == ([], [])


def left(pids: list[int], places: Mapping[str, str]) -> tuple[list[int], list[Path]]:
    """Return which of these processes and which files are still there once they had time to go."""
    until = time.monotonic() + 10
    while (alive(pids) or written(places)) and time.monotonic() < until:
        time.sleep(0.05)
    return alive(pids), written(places)


@pytest.mark.parametrize("presses", swept([2, 1]))
def test_ctrl_c_leaves_nothing(presses: int, film: Path, places: Mapping[str, str]) -> None:
    """Pressed once or twice in the middle of a job: no process and no file is left but what the job goes on from."""
    with program(*long_job(film, "o.mp4"), env={**places, "TMPDIR": places["RAY_TMPDIR"]}) as process:
        wait_for(process, "segment_finished")
        pids = [each.pid for each in family(process)]
        for _ in range(presses):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert left(pids, places) == ([], [])
    assert [path.name for path in (film.parents[1] / "out").iterdir()] == [".o.mp4.codecfleet"]


@pytest.mark.parametrize(
    ("order", "victim"), swept([("", "host"), ("first", "raylet"), ("first", "gcs_server"), ("first", "host")])
)
def test_ray_dies_in_the_middle(order: str, victim: str, film: Path) -> None:
    """With the host or one of Ray's own processes killed in the middle, a job gives the same bytes, and says so."""
    out = film.parents[1] / "out"
    whole = transcode(spec_of(film, out / "whole.mp4", segment_s=Fraction(1), scale=(480, 270)))
    with program(*long_job(film, "killed.mp4"), env={**os.environ, "CODECFLEET_RAY": order}) as process:
        wait_for(process, "segment_finished")
        below = family(process)
        next(p for p in below if (is_host(p) if victim == "host" else p.name() == victim)).kill()
        rest, err = process.communicate(timeout=120)
    done = json.loads(rest.splitlines()[-1])
    assert (process.returncode, done["event"]) == (0, "done"), err
    assert done["report"]["proof"]["output_sha256"] == whole.proof.output_sha256
    assert (out / "killed.mp4").read_bytes() == (out / "whole.mp4").read_bytes()
    assert sum("was replaced during the run" in warning["message"] for warning in done["report"]["warnings"]) == 1
    assert len(list(out.iterdir())) == 2
    assert gone(below)


def test_every_host_dies(film: Path) -> None:
    """A fleet that loses host after host gives up in one line, and nothing is left."""
    out = film.parents[1] / "out"
    with program(film, out / "o.mp4") as process:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            for child in psutil.Process(process.pid).children():
                with suppress(psutil.Error):  # it has just ended
                    if is_host(child):
                        child.kill()
            time.sleep(0.05)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 5
    (line,) = err.splitlines()
    assert "the process that holds Ray ended 4 times in a row" in line
    assert list(out.iterdir()) == []
