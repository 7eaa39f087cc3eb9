"""A short run of the fuzzing harness."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("fuzz.py")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("cases", [1, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_mutated_films_end_well(cases: int, tmp_path: Path) -> None:
    """Each case ends in exact output or in an error of one line."""
    command = [sys.executable, str(HARNESS), "--own", "--seed", "100", "--cases", str(cases), "--keep", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases" in done.stdout
    assert "findings: 0" in done.stdout
