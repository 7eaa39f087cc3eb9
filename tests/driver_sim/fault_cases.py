"""Runs cases of ``fault_programs.py``, and checks the messages of their errors."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

from .fault_table import PATIENCE_S, Row
from .scenario import Fault, Scenario, machine
from .simulated_driver import REPOSITORY, simulated_environment
from .test_dla import scenario as orin


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a program; ``limit_s`` is the limit of hanging calls, ``patience_s`` that of the run."""

    program: str
    faults: tuple[Fault, ...]
    limit_s: float = 0.0
    patience_s: float = PATIENCE_S
    xids: bool = False

    def scenario(self) -> Scenario:
        """Return the machine with the faults."""
        if self.program.startswith(("cudla", "nvsci")):
            return orin(*self.faults)
        return Scenario(machine=machine("rtx-4090"), faults=self.faults)


def told_by(folder: Path, cases: list[Case], *, limit_s: float = 550) -> list[dict[str, Any]]:
    """Run all cases in forks of one process, in ``limit_s``; return the report of each."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(26), options=(("x264-params", "keyint=8"),)))
    described = []
    for number, case in enumerate(cases):
        own = folder / str(number)
        own.mkdir()
        environment = simulated_environment(case.scenario(), own)
        environment.pop("DRIVER_SIM_TRACE")
        described.append(
            {
                "program": case.program,
                "environment": environment,
                "limit_s": case.limit_s,
                "patience_s": case.patience_s,
                "xids": case.xids,
            }
        )
    (folder / "cases.json").write_text(json.dumps({"film": str(film), "cases": described}), encoding="utf-8")
    variables = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    variables |= {"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"], "PYTHONPATH": str(REPOSITORY)}
    variables |= {"OPENBLAS_NUM_THREADS": "1"}  # a process with threads must not be forked
    done = subprocess.run(
        [sys.executable, "-m", "tests.driver_sim.fault_programs", str(folder / "cases.json")],
        env=variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def told_of_rows(request: pytest.FixtureRequest, folder: Path, case_of: Callable[[Row], Case]) -> dict[str, Any]:
    """Return the report of the program of each tested row, by the row's name."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    params = [call.params["row"] for call in calls if call is not None and isinstance(call.params.get("row"), Row)]
    rows = {row.name: row for row in params}
    return dict(zip(rows, told_by(folder, [case_of(row) for row in rows.values()]), strict=True))


def first_of_each(rows: Iterable[Row]) -> frozenset[str]:
    """Return the name of the first row of each program, action and outcome: CI tests only these."""
    first: dict[object, str] = {}
    for row in rows:
        first.setdefault((row.program, row.fault.action, row.outcome), row.name)
    return frozenset(first.values())


def assert_clear(message: str, next_step: str) -> None:
    """Check that an error has one line that says what failed, and one line that says what to do."""
    assert message
    assert next_step
    for line in (message, next_step):
        assert line == " ".join(line.split()), line
        assert len(line) <= 320, line
    assert not message.endswith((".", ":", ",")), message
    assert next_step.endswith("."), next_step
