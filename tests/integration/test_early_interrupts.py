"""A signal while the program is still importing gives one line, the signal's exit code, and no traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

PROGRAM = """
import os, sys
from codecfleet.__main__ import main
imports, at, number = 0, int(sys.argv[1]), int(sys.argv[2])

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        global imports
        imports += 1
        if imports == at:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["codecfleet", *sys.argv[3:]]
sys.exit(main())
"""
"""Runs the program, which gets a signal in the middle of its n-th import."""
COMMANDS = {"probe": ["probe"], "verify": ["verify"], "transcode": ["transcode"], "batch": ["batch", "--output", "out"]}


@pytest.mark.parametrize("at", [1, 20, *swept(range(60, 400, 40), is_slow=bool)])
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", swept(COMMANDS))
def test_a_signal_during_an_import(command: str, number: int, at: int, tmp_path: Path) -> None:
    """A signal during an import leaves nothing, and none of the imports' errors is shown."""
    clip = make_clip(tmp_path / "a.mkv", Clip(times=constant_times(6), keyframes=frozenset({0, 4})))
    files = [str(clip)] * 2 if command == "verify" else [str(clip)]
    files += ["out.mkv"] if command == "transcode" else []
    run = [sys.executable, "-P", "-c", PROGRAM, str(at), str(number), *COMMANDS[command], *files]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 128 + number, done.stderr
    *said, last = done.stderr.splitlines()
    assert last.startswith("codecfleet: error: interrupted.")
    assert said in ([], ["codecfleet: cancelling; press Ctrl-C again to stop at once"])
    assert not (tmp_path / "out.mkv").exists()
