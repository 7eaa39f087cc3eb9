"""The program as a process: signals, pipes, start-up."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.sweeps import swept

from .cli_program import ROOT, TRANSCODE, end, program, wait_for


@pytest.mark.parametrize(("number", "code"), swept([(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]))
def test_a_signal_cancels_the_job(number: signal.Signals, code: int) -> None:
    """After a signal the running job is cancelled, and exit code and last line name the signal."""
    with program(TRANSCODE, script="sample_events()[:3]", options="hangs=True") as process:
        wait_for(process, "of video")
        process.send_signal(number)
        ended, err = end(process)
    assert ended == code
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted.")
    assert "Traceback" not in err


@pytest.mark.parametrize("options", swept(["hangs=True, closes=False", "starts=False"]))
def test_a_fleet_that_hangs_is_not_waited_for(options: str) -> None:
    """If the fleet hangs while it starts or closes, Ctrl-C ends the program."""
    with program([*TRANSCODE, "--json"], script="sample_events()[:1]", options=options) as process:
        wait_for(process, "opening")
        if "hangs" in options:
            assert process.stdout is not None
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        ended, err = end(process)
    assert ended == 130
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted.")
    assert "Traceback" not in err


def test_a_second_ctrl_c_ends_the_program_at_once() -> None:
    """A second Ctrl-C skips every wait."""
    with program(TRANSCODE, script="sample_events()[:3]", options="hangs=True, closes=False") as process:
        wait_for(process, "of video")
        process.send_signal(signal.SIGINT)
        wait_for(process, "cancelling")
        process.send_signal(signal.SIGINT)
        ended, err = end(process)
    assert ended == 130
    assert err == "codecfleet: error: interrupted.\n"


def test_a_published_output_counts_as_done_whatever_the_shutdown_does() -> None:
    """If Ctrl-C comes while a fleet closes after the proof was printed, the exit code is 0."""
    with program(TRANSCODE, options="closes=False") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("warnings"):
                break
        process.send_signal(signal.SIGINT)
        ended, _ = end(process)
    assert ended == 0


@pytest.mark.parametrize(("number", "code"), swept([(signal.SIGTERM, 143), (signal.SIGINT, 130)]))
def test_a_question_is_interrupted_in_one_line(number: signal.Signals, code: int) -> None:
    """A signal ends a long verification in one line, like a job."""
    with program(["verify", "in.mkv", "out.mp4"]) as process:
        wait_for(process, "verifying")
        process.send_signal(number)
        ended, err = end(process)
    assert (ended, err) == (code, "codecfleet: error: interrupted.\n")


def test_json_ends_with_failed_when_interrupted() -> None:
    """The last line tells a program that reads the events about the interruption."""
    with program([*TRANSCODE, "--json"], script="sample_events()[:1]", options="hangs=True") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "planned"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["error"], last["exit_code"]) == ("failed", "Cancelled", 130)


@pytest.mark.parametrize("arguments", swept([[*TRANSCODE, "--json"], ["probe", "in.mkv"], ["transcode", "--help"]]))
def test_a_reader_who_has_enough_ends_the_program_quietly(arguments: list[str]) -> None:
    """``| head`` never causes a traceback."""
    with program(arguments, script="sample_events()[:1]*5000", options="hangs=True") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(timeout=20)
    assert err in ("", "opening\n")
    assert code == 141 or arguments[-1] == "--help"


def test_a_usage_error_is_one_line() -> None:
    """``python -m codecfleet`` is the program, and an argument that is not valid UTF-8 is shown escaped."""
    name = os.fsdecode(b"caf\xe9-\x1b[31m.mkv")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "codecfleet", "transcode", "in.mkv", "out.mp4", "--scale", name]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr


def test_a_slow_exit_after_an_interruption_is_cut_short() -> None:
    """The interpreter's exit after an interruption has a time limit."""
    options = "hangs=True); import atexit, threading; atexit.register(threading.Event().wait"
    with program(TRANSCODE, script="sample_events()[:1]", options=options) as process:
        wait_for(process, "of video")
        process.send_signal(signal.SIGINT)
        ended, err = end(process)
    assert ended == 130
    assert err.splitlines()[-1].startswith("codecfleet: error: interrupted.")
