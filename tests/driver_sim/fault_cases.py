"""Runs cases of ``fault_programs.py``, and checks the messages of their errors."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .fault_programs import FAILED
from .fault_table import PATIENCE_S, Row
from .scenario import Fault, Scenario, machine
from .simulated_driver import run_simulated
from .test_dla import scenario as orin

__all__ = ["Case", "Told", "assert_clear", "first_of_each", "told_by"]

PROGRAM = "from tests.driver_sim.fault_programs import main\nmain()"


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a program; ``limit_s`` is the limit of hanging calls, ``patience_s`` that of the run."""

    program: str
    faults: tuple[Fault, ...] = ()
    limit_s: float = 0.0
    patience_s: float = PATIENCE_S
    xids: bool = False

    def scenario(self) -> Scenario:
        """Return the machine with the faults."""
        if self.program.startswith(("cudla", "nvsci")):
            return orin(*self.faults)
        return Scenario(machine=machine("rtx-4090"), faults=self.faults)


@dataclass(frozen=True, slots=True)
class Told:
    """The report of a case."""

    lines: tuple[list[str], ...]  # of each step: its name, and the error's class, retry, message and next step
    exit_code: int | None  # None: it was killed, because it did not end


def told_by(case: Case, film: Path) -> Told:
    """Run a case, whose program may decode ``film``."""
    arguments = [case.program, str(film), str(case.limit_s), "xids" if case.xids else ""]
    ran = run_simulated(PROGRAM, case.scenario(), arguments=arguments, timeout_s=case.patience_s)
    assert ran.exit_code != FAILED, ran.stderr
    return Told(tuple(json.loads(line) for line in ran.stdout.splitlines()), ran.exit_code)


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
