import ctypes
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.fleet_file import built_in_fleets, load_fleet

from .build import LIBRARIES, PACKAGES, BuildError, built_libraries
from .scenario import SIMULATED, Action, Fault, Scenario, machine
from .simulated_driver import run_simulated, simulated_environment

READ = """
import ctypes
sim = ctypes.CDLL("libcodecfleet_sim.so.1")
sim.sim_gpu_at.restype = ctypes.c_void_p
index = 0
while address := sim.sim_gpu_at(index):
    print(ctypes.string_at(address + 12).decode())
    index += 1
"""
ENTER = """
import ctypes, sys
sim = ctypes.CDLL("libcodecfleet_sim.so.1")
status = ctypes.c_int(-1)
print([(sim.sim_enter(sys.argv[1].encode(), device, ctypes.byref(status)), status.value) for device in (0, 1, 0, 0)])
print(sim.sim_xid_count())
"""
BAD_SCENARIO_EXIT = 97
GO, STATUS, SHORT, CORRUPT = range(4)


def test_every_library_is_built_under_its_own_name() -> None:
    """Each library that is built carries the SONAME under which NVIDIA's packages look for it."""
    folder = built_libraries()
    names = {path.name for path in folder.iterdir()}
    assert {"libcodecfleet_sim.so.1", "libcuda.so.1", "libnvcuvid.so.1"} <= names
    assert all(name.encode() + b"\0" in (folder / name).read_bytes() for name in names)
    assert ctypes.CDLL(str(folder / "libcodecfleet_sim.so.1")).sim_visible_count() == 0


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error names Debian's packages."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match=" ".join(PACKAGES)):
        built_libraries()


@pytest.mark.parametrize("fleet", sorted(built_in_fleets()))
def test_every_fleets_machines_can_be_simulated(fleet: str) -> None:
    """The first machine of each fleet of ours is read, and every device of it says that it is simulated."""
    node = load_fleet(fleet).nodes[0]
    gpus = [device for device in node.devices if device.kind is not DeviceKind.CPU]
    ran = run_simulated(READ, Scenario(machine=node))
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"{device.name}{SIMULATED}" for device in gpus]


def test_a_machine_is_found_by_its_name() -> None:
    """A machine is named, or is the fleet's first; one that is not there is an error."""
    nodes = load_fleet("h200-l40s").nodes
    assert machine("h200-l40s", nodes[1].name) == nodes[1]
    assert machine("h200-l40s") == nodes[0]
    with pytest.raises(LookupError, match="no machine unknown"):
        machine("h200-l40s", "unknown")


@pytest.mark.parametrize("line", ["nonsense", "device 0\nuuid MIG-1", "name L4 (simulated)", "fault cuInit * 0 hang"])
def test_a_scenario_that_makes_no_sense_ends_the_process(tmp_path: Path, line: str) -> None:
    """Nothing runs against half a scenario: the process ends and says which line it was."""
    environment = simulated_environment(Scenario(machine=machine("laptop")), tmp_path)
    (tmp_path / "scenario").write_text(f"{line}\n")
    ran = run_simulated(READ, Scenario(machine=machine("laptop")), environment=environment)
    assert ran.exit_code == BAD_SCENARIO_EXIT
    assert line.splitlines()[-1].split(" ", 1)[-1] in ran.stderr


@pytest.mark.parametrize(
    ("action", "value"), [(Action.STATUS, None), (Action.XID, None), (Action.HANG, 1), (Action.SHORT, 0)]
)
def test_a_fault_has_a_value_where_its_action_takes_one(action: Action, value: int | None) -> None:
    """A status without a number and a hang with one are refused."""
    with pytest.raises(ValueError, match=re.escape(repr(action.value))):
        Fault(function="cuInit", action=action, value=value)


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
    """A fault happens to the calls of its function that it counts to, on its device, and to no others."""
    ran = run_simulated(ENTER, Scenario(machine=machine("l4-x4"), faults=(fault,)), arguments=["cuX"])
    said = eval(ran.stdout.splitlines()[0])  # noqa: S307 -- a list of pairs that the program above printed
    assert [verdict for verdict, _ in said] == verdicts
    expected = {STATUS: 999 if fault.action is Action.LOSE else 7}
    assert all(status == expected[verdict] for verdict, status in said if verdict in expected)
    assert [line.values["call"] for line in ran.calls("cuX")] == ["1", "2", "3", "4"]


def test_the_lost_status_is_the_librarys_own() -> None:
    """A lost device is told of by each library in its own words."""
    lost = {"nvmlX": 15, "NvEncX": 20, "cudlaX": 6, "cuvidX": 999}
    for function, status in lost.items():
        faults = (Fault(function=function, action=Action.LOSE, device=0),)
        ran = run_simulated(ENTER, Scenario(machine=machine("l4-x4"), faults=faults), arguments=[function])
        assert f"({STATUS}, {status})" in ran.stdout


def test_processes_that_share_a_state_see_one_machine(tmp_path: Path) -> None:
    """With a shared state a fault's calls are counted over all processes, and Xids are everybody's."""
    node = machine("l4-x4")
    first, *rest = node.devices
    scenario = Scenario(
        machine=replace(node, devices=(replace(first, xids=(31,)), *rest)),
        faults=(Fault(function="cuX", action=Action.XID, value=79, device=0, call=4),),
    )
    environment = {**os.environ, **simulated_environment(scenario, tmp_path, shared_state=True)}
    command = [sys.executable, "-c", ENTER, "cuX"]
    counts = [run_simulated(command, scenario, environment=environment).stdout.splitlines()[1] for _ in range(2)]
    assert counts == ["1", "2"]


def test_sources_say_that_they_are_a_simulator() -> None:
    """Every library's main source says in its first lines that it simulates."""
    for library in LIBRARIES:
        assert "simulat" in library.sources[0].read_text()[:600].lower(), library.file
