"""Polls of a machine that changes: the fake and the simulated library give the same readings at every poll."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pynvml
import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.gpus.live_health import DeviceHealth
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.device_report import why_unplaceable
from codecfleet.cluster.probes.vgpu.instances import VgpuLoad
from codecfleet.cluster.probes.vgpu.licence import Licence, LicenceState
from codecfleet.testing import FakeNvml
from codecfleet.testing.nvml.fake_nvml_state import FakeNvmlDevice

from .scenario import SIMULATED, Action, Fault, Scenario, machine
from .simulated_driver import run_simulated

POLLS: TypeAdapter[tuple[tuple[DeviceHealth, ...], ...]] = TypeAdapter(tuple[tuple[DeviceHealth, ...], ...])
POLLS.rebuild(_types_namespace={"Licence": Licence, "VgpuLoad": VgpuLoad})  # imported only for types there
PROGRAM = """
import sys
from datetime import UTC, datetime
import pynvml
from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from tests.driver_sim.test_live_health import POLLS
poll = HealthPoll(pynvml, now_utc=lambda: datetime(2026, 1, 1, tzinfo=UTC))
sys.stdout.buffer.write(POLLS.dump_json(tuple(poll.poll(frozenset()) for _ in range(2))))
"""
SECOND = 2
"""The poll that finds the change; a poll asks each query about a device once, except those below."""


def answer(function: str, value: int, action: Action = Action.ANSWER) -> Fault:
    """Return a fault: a query about the first device gets another answer from the second poll on."""
    return Fault(function=function, action=action, value=value, device=0, call=SECOND, onwards=True)


@dataclass(frozen=True, slots=True)
class Case:
    """An event on the first device of a machine between two polls, and the reading that shows it."""

    name: str
    faults: tuple[Fault, ...]
    change: Callable[[FakeNvml, FakeNvmlDevice], object]
    shows: Callable[[DeviceHealth], bool]
    fleet: str = "h200-l40s"
    node: str = ""


CASES = [
    Case(
        "a foreign load on NVDEC",
        (answer("nvmlDeviceGetDecoderUtilization", 83),),
        lambda _, device: setattr(device, "decoder_percent", 83),
        lambda seen: seen.decoder_percent == 83,
    ),
    Case(
        "a foreign load on NVENC",
        (answer("nvmlDeviceGetEncoderUtilization", 51),),
        lambda _, device: setattr(device, "encoder_percent", 51),
        lambda seen: seen.encoder_percent == 51,
        "l4-x4",
    ),
    Case(
        "memory errors",
        (answer("nvmlDeviceGetTotalEccErrors", 4),),
        lambda _, device: setattr(device, "ecc_uncorrected", 4),
        lambda seen: "4 errors" in why_unplaceable(seen.health),
    ),
    Case(
        "rows that wait for a reset",
        (answer("nvmlDeviceGetRemappedRows", 1),),
        lambda _, device: setattr(device, "remapping_pending", 1),
        lambda seen: "a reset is pending" in why_unplaceable(seen.health),
    ),
    Case(
        "the driver's advice",
        (answer("nvmlDeviceGetFieldValues", 2),),
        lambda _, device: setattr(device, "recovery_action", 2),
        lambda seen: why_unplaceable(seen.health) == "its driver advises: reboot",
    ),
    Case(
        "clocks that are held down",
        (answer("nvmlDeviceGetCurrentClocksEventReasons", 0x48),),
        lambda _, device: setattr(device, "clock_reasons", 0x48),
        lambda seen: seen.throttle == "hardware slowdown, hardware thermal slowdown",
    ),
    Case(
        "an Xid",
        (Fault(function="nvmlDeviceGetMigMode", action=Action.XID, value=48, device=0, call=1),),
        lambda nvml, device: nvml.raise_xid(device.simulated.uuid, 48),
        lambda seen: seen.health.xids == (48,),
    ),
    Case(
        "a GPU that is lost",
        (Fault(function="nvmlDeviceGetMigMode", action=Action.LOSE, device=0, call=SECOND),),
        lambda _, device: setattr(device, "lost_code", pynvml.NVML_ERROR_GPU_IS_LOST),
        lambda seen: "GPU_IS_LOST" in seen.health.lost and isinstance(seen.uuid, str),
    ),
    Case(
        "a question that is not permitted any more",
        (answer("nvmlDeviceGetDecoderUtilization", 4, Action.STATUS),),
        lambda _, device: device.faults.update(nvmlDeviceGetDecoderUtilization=4),
        lambda seen: isinstance(seen.decoder_percent, Unavailable) and "NO_PERMISSION" in seen.decoder_percent.reason,
    ),
    Case(
        "a licence that was given back",
        (answer("nvmlDeviceGetGridLicensableFeatures_v4", 0),),
        lambda _, device: setattr(device, "licensed", False),
        lambda seen: not isinstance(seen.licence, Unavailable) and seen.licence.state is LicenceState.MISSING,
        "vgpu",
        "guest-1",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_machines_are_read_alike_before_and_after(case: Case) -> None:
    """The first poll finds a healthy machine and the second poll the event; both libraries give the same reading."""
    node = machine(case.fleet, case.node)
    nvml = FakeNvml(node)
    poll = HealthPoll(nvml, now_utc=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    first = poll.poll(frozenset())
    case.change(nvml, nvml.devices[0])
    second = poll.poll(frozenset())
    assert not isinstance(first, Unavailable)
    assert not isinstance(second, Unavailable)
    assert not case.shows(first[0])
    assert case.shows(second[0])
    ran = run_simulated(PROGRAM, Scenario(machine=node, faults=case.faults))
    assert ran.exit_code == 0, ran.stderr
    found = POLLS.validate_json(ran.stdout)
    expected = POLLS.validate_python((_named(first), _named(second)))
    assert _plain(found) == _plain(expected)


def _named(polled: tuple[DeviceHealth, ...]) -> tuple[DeviceHealth, ...]:
    return tuple(replace(each, name=f"{each.name}{SIMULATED}") for each in polled)


def _plain(polls: tuple[tuple[DeviceHealth, ...], ...]) -> Any:
    return json.loads(POLLS.dump_json(polls))
