"""Codec trials of equal GPUs on the simulated driver: a failing engine counts only for its own device."""

import json
from typing import Final

import pytest

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import needs, run_simulated

PROBE: Final = """
import json
from codecfleet.cluster.probes.node.trials import Subject, TrialPlan, try_devices
from codecfleet.cluster.probes.trials.software import probe_software
found = [Subject(str(number), "L4") for number in (0, 1)]
plan = TrialPlan("580", (), None, True, 1e9)
devices, problems = try_devices(found, probe_software(60).streams, plan)
works = [{each.engine.value for each in device.trials if each.works} for device in devices]
print(json.dumps([[sorted(each) for each in works], problems]))
"""
GENERIC: Final = 20
"""NV_ENC_ERR_GENERIC."""


@pytest.mark.slow
@needs("PyNvVideoCodec")
@pytest.mark.parametrize("sick", [0, 1])
def test_a_gpu_whose_nvenc_fails_is_known_though_its_neighbour_encodes(sick: int) -> None:
    """A quick version of this test is in tests/unit/cluster/probes/node/test_device_trials.py."""
    faults = (Fault(function="NvEncEncodePicture", action=Action.STATUS, value=GENERIC, device=sick),)
    ran = run_simulated(PROBE, Scenario(machine=machine("l4-x4"), faults=faults), timeout_s=200)
    assert ran.exit_code == 0, ran.stderr
    works, _ = json.loads(ran.stdout)
    assert works[sick] == ["nvdec"]
    assert works[1 - sick] == ["nvdec", "nvenc"]
