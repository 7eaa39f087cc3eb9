"""The simulated NVML through the real binding gives the fake's answers, and the memory that CUDA allocates."""

import json
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing import FakeNvml
from tests.sweeps import swept

from .nvml_answers import answers
from .scenario import Scenario, machine
from .simulated_driver import Ran, run_simulated

MACHINES = {
    f"{fleet}/{node.name}": node
    for fleet in ("rtx-4090", "l4-x4", "a100-mig", "vgpu", "h200-l40s")
    for node in load_fleet(fleet).nodes
    if any(not each.uuid.endswith("/cpu") for each in node.devices)
} | {node.name: node for node in load_fleet(Path(__file__).with_name("parts.toml")).nodes}
SHORT = ("rtx-4090/workstation", "a100-mig/a100", "vgpu/hypervisor", "vgpu/guest-1")


def _printed(ran: Ran) -> Any:
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", swept(MACHINES, is_slow=lambda name: name not in SHORT))
def test_the_library_answers_what_the_fake_does(name: str) -> None:
    """Each query of the fake has the same answer from the simulated library through the real binding."""
    node = MACHINES[name]
    fake = FakeNvml(node)
    fake.nvmlInit()
    expected = json.loads(json.dumps(answers(fake)))
    program = "from tests.driver_sim.nvml_answers import main\nmain()"
    found = _printed(run_simulated(program, Scenario(machine=node)))
    differing = {key: (found.get(key), expected.get(key)) for key in {*found, *expected}}
    assert {key: pair for key, pair in differing.items() if pair[0] != pair[1]} == {}


def test_memory_and_processes_are_those_of_cuda() -> None:
    """NVML reports the memory that a process allocates through CUDA."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    program = """
import json, os, pynvml
from cuda.bindings import driver
def cuda(result):
    assert not int(result[0]), result[0]
    return result[1] if len(result) > 1 else None
cuda(driver.cuInit(0))
cuda(driver.cuCtxSetCurrent(cuda(driver.cuDevicePrimaryCtxRetain(0))))
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
cuda(driver.cuMemAlloc(1 << 20))
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
(process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
print(json.dumps([memory.used - before, memory.used + memory.free - memory.total, process.pid == os.getpid(),
                  process.usedGpuMemory == memory.used]))
"""
    used, unaccounted, own, same = _printed(run_simulated(program, Scenario(machine=machine("rtx-4090"))))
    assert used >= 1 << 20
    assert (unaccounted, own, same) == (0, True, True)
