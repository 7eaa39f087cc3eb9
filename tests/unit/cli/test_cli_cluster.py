"""The commands about machines, from arguments to exit code, with given machines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Machines, Services
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.node.report import NodeReport, SilentNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

Captured = pytest.CaptureFixture[str]
FLEETS = Path(__file__).parents[3] / "configs" / "fleets"


def machine(fleet: str) -> NodeReport:
    """Return the first machine of a fleet."""
    return simulated_report(load_fleet(FLEETS / f"{fleet}.toml").nodes[0], fleet)


class Asked:
    """Services with given machines, which record the requested machines."""

    def __init__(self, *reports: NodeReport | SilentNode) -> None:
        self.reports = reports
        self.machines: list[Machines] = []

    def services(self) -> Services:
        """Return them."""
        return Services(reports=self._answer)

    def _answer(self, machines: Machines) -> tuple[NodeReport | SilentNode, ...]:
        self.machines.append(machines)
        return self.reports


def broken() -> NodeReport:
    """Return a machine whose GPU is lost."""
    report = machine("rtx-4090")
    assert isinstance(report.nvml, NvmlReport)
    gpu = report.nvml.devices[0]
    lost = replace(gpu, health=replace(gpu.health, lost="it fell off the bus"))
    return replace(report, nvml=replace(report.nvml, devices=(lost,)))


@pytest.mark.parametrize(("report", "code"), [(machine("laptop"), 0), (broken(), 1)], ids=["healthy", "broken"])
def test_doctors_exit_code_says_whether_there_is_something_to_fix(
    report: NodeReport, code: int, capsys: Captured
) -> None:
    """The exit code is 0 for a machine without a GPU and 1 for one whose GPU is lost; --json agrees."""
    assert run(["doctor"], Asked(report).services()) == code
    assert capsys.readouterr().out.splitlines()[-1] == ("1 thing to fix" if code else "healthy: nothing to fix")
    assert run(["doctor", "--json"], Asked(report).services()) == code
    assert json.loads(capsys.readouterr().out)["healthy"] is not bool(code)


def test_a_fleet_file_needs_no_machine(capsys: Captured) -> None:
    """With --fleet, the real services read only the file of a built-in fleet."""
    assert run(["nodes", "--fleet", str(FLEETS / "h200-l40s.toml")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("SIMULATED (")
    assert "8 x NVIDIA H200" in out


def test_a_fleet_file_that_is_missing_is_named(capsys: Captured) -> None:
    """A path that does not exist is an error of the caller, in one line."""
    assert run(["nodes", "--fleet", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err


def test_devices_shows_what_was_asked_for(capsys: Captured) -> None:
    """--mig shows slices and profiles, --vgpu types and instances; without either, engines are shown."""
    asked = Asked(machine("a100-mig"), machine("vgpu"))
    for option, words in (
        ("--mig", "profile 1g.5gb"),
        ("--vgpu", "L40S-12Q"),
        ("", ": 5 NVDEC"),
        ("--all", "engines: 5 NVDEC"),
    ):
        assert run(["devices", *option.split()], asked.services()) == 0
        assert words in capsys.readouterr().out
