"""The scenario's language: an invalid scenario ends the process, and a fault hits only its own calls."""

from pathlib import Path

import pytest

from .build import PACKAGES, BuildError, built_libraries
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import run_simulated, simulated_environment

READ = "import ctypes; ctypes.CDLL('libcodecfleet_sim.so.1').sim_visible_count()"
ENTER = """
import ctypes, sys
sim = ctypes.CDLL("libcodecfleet_sim.so.1")
status = ctypes.c_int(-1)
print([(sim.sim_enter(sys.argv[1].encode(), device, ctypes.byref(status)), status.value) for device in (0, 1, 0, 0)])
"""
BAD_SCENARIO_EXIT = 97
GO, STATUS, SHORT, CORRUPT = range(4)


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error names Debian's packages."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match=" ".join(PACKAGES)):
        built_libraries()


@pytest.mark.parametrize("line", ["nonsense", "device 0\nuuid MIG-1", "name L4 (simulated)", "fault cuInit * 0 hang"])
def test_a_scenario_that_makes_no_sense_ends_the_process(tmp_path: Path, line: str) -> None:
    """Nothing runs with an invalid scenario: the process ends and names the line."""
    environment = simulated_environment(Scenario(machine=machine("laptop")), tmp_path)
    (tmp_path / "scenario").write_text(f"{line}\n")
    ran = run_simulated(READ, Scenario(machine=machine("laptop")), environment=environment)
    assert ran.exit_code == BAD_SCENARIO_EXIT
    assert line.splitlines()[-1].split(" ", 1)[-1] in ran.stderr


@pytest.mark.parametrize(
    ("fault", "verdicts"),
    [
        (Fault(function="cuX", action=Action.STATUS, value=7, call=2), [GO, STATUS, GO, GO]),
        (Fault(function="cuX", action=Action.STATUS, value=7, call=2, onwards=True), [GO, STATUS, STATUS, STATUS]),
        (Fault(function="cuX", action=Action.STATUS, value=7, device=0, call=2), [GO, GO, STATUS, GO]),
        (Fault(function="cuX", action=Action.SHORT, device=1), [GO, SHORT, GO, GO]),
        (Fault(function="cuX", action=Action.CORRUPT, call=4), [GO, GO, GO, CORRUPT]),
        (Fault(function="cuY", action=Action.CORRUPT), [GO, GO, GO, GO]),
        (Fault(function="cuX", action=Action.LOSE, device=0, call=2), [GO, GO, STATUS, STATUS]),
        (Fault(function="cuX", action=Action.SLOW, value=1), [GO, GO, GO, GO]),
    ],
)
def test_a_fault_befalls_its_calls_alone(fault: Fault, verdicts: list[int]) -> None:
    """A fault hits the stated calls of its function on its device, and no others."""
    ran = run_simulated(ENTER, Scenario(machine=machine("l4-x4"), faults=(fault,)), arguments=["cuX"])
    said = eval(ran.stdout.splitlines()[0])  # noqa: S307 -- a list of pairs, printed by the program above
    assert [verdict for verdict, _ in said] == verdicts
    expected = {STATUS: 999 if fault.action is Action.LOSE else 7}
    assert all(status == expected[verdict] for verdict, status in said if verdict in expected)
    assert [line.values["call"] for line in ran.calls("cuX")] == ["1", "2", "3", "4"]
