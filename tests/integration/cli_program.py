"""The program as a process, on a scripted fleet."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, signal, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests' parent may ignore it, as nohup does
from codecfleet.cli import app as cli
from codecfleet.cli.services import Answer
from codecfleet.cli.services import Services
from codecfleet.testing.fleet.fake_fleet import FakeFleet, sample_events
fleet = FakeFleet({script}, {options})
def open_fleet(address, workers):
    print("opening", file=sys.stderr, flush=True)
    return fleet.open(address, workers)
def verify(pair, progress):
    print("verifying", file=sys.stderr, flush=True)
    threading.Event().wait()
services = Services(open_fleet=open_fleet, verify=verify, probe=lambda source: Answer(["line"] * 100_000, {{}}))
cli.Services = lambda **_: services
sys.exit(cli.main())
"""
TRANSCODE = ["transcode", "in.mkv", "out.mp4"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def command(arguments: list[str], *, script: str = "sample_events()", options: str = "") -> list[str]:
    """Return the command that runs the program on a fake fleet."""
    return [sys.executable, "-c", PROGRAM.format(script=script, options=options), *arguments]


@contextmanager
def program(
    arguments: list[str], *, script: str = "sample_events()", options: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Run the program on a fake fleet, and leave no process behind."""
    with subprocess.Popen(
        command(arguments, script=script, options=options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Read stderr until a line contains ``words``."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the program ended without saying {words!r}")


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; return the exit code and the rest of stderr."""
    _, err = process.communicate(timeout=20)
    return process.returncode, err
