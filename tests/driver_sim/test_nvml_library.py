"""The simulated NVML: what the real binding says of it, held against the fake and against our contract of both."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.devices import NvmlReport, probe_nvml
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing import FakeNvml
from tests.sweeps import swept

from .nvml_answers import answers
from .scenario import SIMULATED, Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

MACHINES = {
    f"{fleet}/{node.name}": node
    for fleet in ("rtx-4090", "l4-x4", "a100-mig", "vgpu", "h200-l40s")
    for node in load_fleet(fleet).nodes
    if any(not each.uuid.endswith("/cpu") for each in node.devices)
} | {node.name: node for node in load_fleet(Path(__file__).with_name("parts.toml")).nodes}
REPORTED = ("a100-mig/a100", "rtx-4090/workstation", "vgpu/hypervisor", "vgpu/guest-1", "cut", "mig-host", "expired")
SHORT = ("rtx-4090/workstation", "a100-mig/a100", "vgpu/hypervisor", "vgpu/guest-1")
CONTRACT = """
import sys
import pynvml, pytest
pynvml.nvmlInit()  # now: the tests' own conftest takes the simulator's variables away
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "real",
                      "tests/contract/test_nvml.py", "tests/contract/test_nvml_instances.py"]))
"""
REPORT = """
import sys
import pynvml
from pydantic import TypeAdapter
from codecfleet.cluster.probes.gpus.devices import NvmlReport, probe_nvml
report = probe_nvml(pynvml, sleep=lambda _: None)
sys.stdout.buffer.write(TypeAdapter(NvmlReport).dump_json(report))
"""
CUDA = """
from cuda.bindings import driver
def cuda(result):
    assert not int(result[0]), result[0]
    return result[1] if len(result) > 1 else None
cuda(driver.cuInit(0))
cuda(driver.cuCtxSetCurrent(cuda(driver.cuDevicePrimaryCtxRetain(0))))
"""


def run(program: str, node: SimulatedNode, *faults: Fault) -> Any:
    """Run a program on a machine, and return what it printed."""
    ran = run_simulated(f"import json, pynvml\n{program}", Scenario(machine=node, faults=faults))
    return _printed(ran)


def _printed(ran: Ran) -> Any:
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", swept(MACHINES, is_slow=lambda name: name not in SHORT))
def test_the_library_answers_what_the_fake_does(name: str) -> None:
    """Each question that the fake knows has the same answer from the simulated library through the real binding."""
    node = MACHINES[name]
    fake = FakeNvml(node)
    fake.nvmlInit()
    expected = json.loads(json.dumps(answers(fake)))
    command = [sys.executable, "-m", "tests.driver_sim.nvml_answers"]
    found = _printed(run_simulated(command, Scenario(machine=node)))
    differing = {key: (found.get(key), expected.get(key)) for key in {*found, *expected}}
    assert {key: pair for key, pair in differing.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("name", swept(REPORTED, is_slow=lambda name: name not in SHORT))
def test_a_probe_makes_the_same_report_of_either(name: str) -> None:
    """A machine's whole report is the same through the simulated library as through the fake, but for the names."""
    node = MACHINES[name]
    found = _printed(run_simulated(REPORT, Scenario(machine=node)))
    expected = probe_nvml(FakeNvml(node), sleep=lambda _: None)
    assert all(each["name"].endswith(SIMULATED) for each in found["devices"])
    told = TypeAdapter(NvmlReport).validate_json(json.dumps(found).replace(SIMULATED, ""))
    assert told == expected


@pytest.mark.parametrize("name", swept(REPORTED))
def test_the_contract_of_the_real_driver_holds(name: str) -> None:
    """The contract tests that run on a real driver pass, none of them skipped, on the simulated one."""
    ran = run_simulated(CONTRACT, Scenario(machine=MACHINES[name]))
    assert ran.exit_code == 0, ran.stdout
    assert "skipped" not in ran.stdout


def test_an_xid_of_a_cuda_call_arrives_as_an_event() -> None:
    """An Xid that a fault raises in another library of the process reaches who waits for the device's events, once."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    program = f"""{CUDA}
from codecfleet.cluster.probes.nvml.events import watch_events
pynvml.nvmlInit()
first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
with watch_events(pynvml, {{"first": first, "second": second}}) as watch:
    before = watch.poll()
    cuda(driver.cuMemAlloc(64))
    events = watch.poll()
    after = watch.poll()
print(json.dumps([[[each.uuid, each.xid] for each in some] for some in (before, events, after)]))
"""
    fault = Fault(function="cuMemAlloc", action=Action.XID, value=31, device=0)
    assert run(program, machine("l4-x4"), fault) == [[], [["first", 31]], []]


def test_xids_of_the_scenario_wait_until_somebody_watches() -> None:
    """An Xid that a fleet file has is told to the first who watches its device, and not to one of another device."""
    node = machine("l4-x4")
    devices = (replace(node.devices[0], xids=(48, 63)), *node.devices[1:])
    program = """
pynvml.nvmlInit()
def told(index):
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(index), 8, events)
    found = []
    try:
        while True:
            event = pynvml.nvmlEventSetWait_v2(events, 0)
            found.append([pynvml.nvmlDeviceGetIndex(event.device), event.eventType, event.eventData])
    except pynvml.NVMLError_Timeout:
        return found
print(json.dumps([told(1), told(0), told(0)]))
"""
    assert run(program, replace(node, devices=devices)) == [[], [[0, 8, 48], [0, 8, 63]], []]


def test_a_lost_gpu_says_so_to_every_question_but_its_handle() -> None:
    """A GPU that a fault loses answers GPU_IS_LOST, raises Xid 79, and leaves its neighbour alone."""
    program = """
pynvml.nvmlInit()
first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(first, 8, events)
found = []
for function in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetMemoryInfo):
    try:
        function(first)
    except pynvml.NVMLError as error:
        found.append(error.value)
pynvml.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([found, pynvml.nvmlEventSetWait_v2(events, 0).eventData, pynvml.nvmlDeviceGetPowerUsage(second)]))
"""
    fault = Fault(function="nvmlDeviceGetPowerUsage", action=Action.LOSE, device=0, call=1)
    assert run(program, machine("l4-x4"), fault) == [[15, 15, 15], 79, 75500]


def test_memory_and_processes_are_those_of_cuda() -> None:
    """What a process allocates through CUDA is what NVML says that it uses."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    program = f"""{CUDA}
import os
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
cuda(driver.cuMemAlloc(1 << 20))
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
(process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
print(json.dumps([memory.used - before, memory.used + memory.free - memory.total, process.pid == os.getpid(),
                  process.usedGpuMemory == memory.used]))
"""
    used, unaccounted, own, same = run(program, machine("rtx-4090"))
    assert used >= 1 << 20
    assert (unaccounted, own, same) == (0, True, True)


def test_each_engine_of_a_slice_can_be_asked_of() -> None:
    """GPM tells the engines that a GPU has from those that it lacks: seven decoders of an H200, and no encoder."""
    program = """
from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.nvml.gpm import METRICS
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
samples = [pynvml.nvmlGpmSampleGet(handle, pynvml.nvmlGpmSampleAlloc()) for _ in range(2)]
asked = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(METRICS), sample1=samples[0], sample2=samples[1])
for place, number in enumerate(METRICS):
    asked.metrics[place].metricId = number
pynvml.nvmlGpmMetricsGet(asked)
told = [METRICS[number] for place, number in enumerate(METRICS) if not asked.metrics[place].nvmlReturn]
print(json.dumps([f"{engine.value}{index}" for engine, index in told]))
"""
    told = run(program, MACHINES["h200-l40s/h200"])
    assert [each for each in told if each.startswith("nvdec")] == [f"nvdec{index}" for index in range(7)]
    assert not [each for each in told if each.startswith("nvenc")]


@pytest.mark.parametrize(
    ("function", "faults", "code"),
    [
        pytest.param("nvmlInit()", (Fault(function="nvmlInit", action=Action.STATUS, value=18),), 18, id="mismatch"),
        pytest.param("nvmlDeviceGetCount()", (), 1, id="not opened"),
        pytest.param("nvmlInit() or pynvml.nvmlDeviceGetHandleByIndex(9)", (), 2, id="no such device"),
        pytest.param("nvmlInit() or pynvml.nvmlDeviceSetMigMode(None, 1)", (), 13, id="a function that it lacks"),
        pytest.param(
            "nvmlInit() or pynvml.nvmlDeviceGetAttributes_v2(None)",
            (Fault(function="nvmlDeviceGetAttributes_v2", action=Action.STATUS, value=4),),
            4,
            id="a fault by the full name",
        ),
    ],
)
def test_errors_are_nvmls_own(function: str, faults: tuple[Fault, ...], code: int) -> None:
    """What goes wrong is said with NVML's own number, and what is missing is FUNCTION_NOT_FOUND."""
    program = f"""
try:
    pynvml.{function}
except pynvml.NVMLError as error:
    print(json.dumps([error.value, str(error)]))
"""
    found, text = run(program, machine("rtx-4090"), *faults)
    assert found == code
    assert text


def test_a_machine_without_devices_has_no_driver_loaded() -> None:
    """Where the scenario has no device, the library is there and says DRIVER_NOT_LOADED."""
    program = """
try:
    pynvml.nvmlInit()
except pynvml.NVMLError as error:
    print(error.value)
"""
    assert run(program, replace(machine("rtx-4090"), devices=())) == 9
