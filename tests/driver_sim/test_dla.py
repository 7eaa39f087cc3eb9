"""NVIDIA's cuDLA binding, and the library alone, on the driver simulator: faults, the order of closing, inference.

Every test runs a child process, because libraries are found when a process starts.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.probes.report.engines import Engine

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

DLAS = 3
MEMORY_BYTES = 8 << 30


PRELUDE = """
import os, sys, warnings
warnings.simplefilter("error")
import numpy as np
from codecfleet.actors.dla.engine.watchdog import Timing
from codecfleet.actors.dla.engine.host import open_host
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.actors.dla.engine.tasks import DlaTask
from codecfleet.actors.dla.engine.watchdog import TimeLimits
from codecfleet.errors import CodecfleetError
from tests.driver_sim.loadable import Loadable, Operation, Tensor

shape = (1, 3, 4, 4)
network = Loadable(Operation.AFFINE, (Tensor("x", shape),), (Tensor("y", shape),), scale=2.0)
values = np.arange(48, dtype=np.float32).reshape(shape)

def prepared(session):
    module = session.load(network.to_bytes())
    x, y = (session.allocate(each.size_bytes) for each in (*module.inputs, *module.outputs))
    session.upload(x, pack(module.inputs[0], values))
    return DlaTask(module=module, inputs=(x.registration,), outputs=(y.registration,)), y

def told(call):
    try:
        call()
    except CodecfleetError as error:
        print(type(error).__name__, error.retry.name, error.message)
    else:
        print("nothing")
"""


def scenario(*faults: Fault) -> Scenario:
    """Return an Orin with three DLAs (real ones have two) and these faults."""
    orin = machine("orin")
    devices = tuple(
        replace(device, engines={**device.engines, Engine.DLA: DLAS}, memory_bytes=MEMORY_BYTES)
        if device.engines.get(Engine.DLA)
        else device
        for device in orin.devices
    )
    return Scenario(machine=replace(orin, devices=devices), faults=faults)


def run(code: str, *faults: Fault, arguments: Sequence[str] = ()) -> Ran:
    """Run code after the prelude; check that it ends without an error."""
    ran = run_simulated(PRELUDE + code, scenario(*faults), arguments=arguments)
    assert ran.exit_code == 0, ran.stderr
    return ran


@pytest.mark.parametrize("environment", ["os.environ", "{}"], ids=["isolated", "poisoned"])
def test_an_asynchronous_error_is_found_and_ends_everything(environment: str) -> None:
    """An engine's error appears when its tasks are waited for, even if CUDA hides it, and ends all sessions."""
    ran = run(
        f"""
host = open_host(environment={environment})
one, other = host.open(0), host.open(1)
task, _ = prepared(one)
one.submit([task])
told(one.synchronize)
told(one.synchronize)
told(other.attributes)
told(lambda: host.open(2))
print(one.state.value, other.state.value)
host.close()
print(one.state.value, other.state.value)
""",
        Fault(function="cudlaTask", action=Action.STATUS, value=0x40000001, call=1),
    )
    first, *later, states, ended = ran.stdout.splitlines()
    assert first.startswith("EngineFailed ELSEWHERE DLA 0: cudlaSubmitTask: the engine refused the task's input")
    assert all(line.startswith("DeviceLost ELSEWHERE ") for line in later)
    assert len(later) == 3
    assert (states, ended) == ("failed failed", "abandoned abandoned")
    assert not ran.calls("cudlaDestroyDevice"), "nothing is called any more after an error"
    assert not ran.calls("cuDevicePrimaryCtxRelease")


def test_every_handle_is_asked_when_cuda_blames_an_engine() -> None:
    """If a stream fails because of another session's task, the error names the DLA that is to blame."""
    ran = run(
        """
host = open_host(environment={})
guilty, innocent = host.open(1), host.open(0)
task, _ = prepared(guilty)
other_task, _ = prepared(innocent)
guilty.submit([task], stream=innocent.stream)
innocent.submit([other_task])
told(innocent.synchronize)
print(guilty.state.value, innocent.state.value)
""",
        Fault(function="cudlaTask.dla1", action=Action.STATUS, value=0x40000007, call=1),
    )
    told, states = ran.stdout.splitlines()
    assert told.startswith("EngineFailed ELSEWHERE DLA 1: cudlaSubmitTask: the engine's data does not match")
    assert states == "failed failed"


@pytest.mark.parametrize(
    "function", ["cudlaSubmitTask", "cuStreamSynchronize", "cudlaGetLastError", "cuMemcpyHtoDAsync"]
)
def test_the_watchdog_gives_up_on_what_never_returns(function: str) -> None:
    """A call that hangs forever delays neither its caller nor the end of the process."""
    ran = run(
        """
host = open_host(Timing(limits=TimeLimits(task_s=0.2, grace_s=0.2, call_s=0.4)))
session = host.open(0)
def work():
    session.submit([prepared(session)[0]])
    session.synchronize()
told(work)
told(session.attributes)
session.close()
host.close()
print(session.state.value)
""",
        Fault(function=function, action=Action.HANG, call=1),
    )
    hung, later, state = ran.stdout.splitlines()
    called = {"cuMemcpyHtoDAsync": "a CUDA copy"}.get(function, function)
    assert hung.startswith(f"EngineHung ELSEWHERE DLA 0: {called} did not return within")
    assert later.startswith("DeviceLost ELSEWHERE ")
    assert state == "abandoned"


def test_a_discrete_gpu_is_refused() -> None:
    """With a discrete GPU, hybrid mode is not supported."""
    gpu = replace(machine("rtx-4090").devices[0], engines={Engine.DLA: 1})
    node = replace(machine("rtx-4090"), devices=(gpu,))
    done = run_simulated(PRELUDE + "told(lambda: open_host().open(0))", Scenario(machine=node))
    assert done.stdout.startswith("Unsupported NEVER DLA 0: cudlaCreateDevice: "), done.stderr


def test_devices_are_destroyed_before_the_context() -> None:
    """Closing the host waits for tasks, destroys every handle, and only then releases the context."""
    ran = run("""
host = open_host()
print(host.count, host.version())
sessions = [host.open(number) for number in range(3)]
for session in sessions:
    task, y = prepared(session)
    session.submit([task, task])
host.close()
print([session.state.value for session in sessions])
""")
    assert ran.stdout.splitlines() == ["3 (1, 2, 1)", "['closed', 'closed', 'closed']"]
    calls = [line.function for line in ran.trace if line.is_call]
    destroyed = [place for place, name in enumerate(calls) if name == "cudlaDestroyDevice"]
    assert len(destroyed) == 3
    assert destroyed[-1] < calls.index("cuDevicePrimaryCtxRelease")
    ends = [
        calls.index(name) for name in ("cudlaMemUnregister", "cudlaModuleUnload", "cudlaDestroyDevice", "cuMemFree")
    ]
    assert ends == sorted(ends)
    for number, place in enumerate(destroyed):
        tasks = [other for other, name in enumerate(calls) if name == f"cudlaTask.dla{number}"]
        assert len(tasks) == 2
        assert max(tasks) < place


def test_statistics_and_diagnostics_and_skipped_tasks() -> None:
    """A task writes statistics if it has memory for them; the diagnostics module runs; NOOP tasks run nothing."""
    ran = run("""
from codecfleet.actors.dla.engine.tasks import Access, LoadOption, SubmitOption
host = open_host()
room = Tensor("s", (1, 1, 1, 8))
with_statistics = Loadable(Operation.AFFINE, (Tensor("x", shape),), (Tensor("y", shape),), statistics=(room,))
with host.open(0) as session:
    module = session.load(with_statistics.to_bytes(), LoadOption.SHARED_SCRATCH_MEMORY)
    x, y = (session.allocate(each.size_bytes) for each in (*module.inputs, *module.outputs))
    s = session.allocate(module.statistics[0].size_bytes, Access.TASK_STATISTICS)
    found = np.zeros(s.size_bytes, dtype=np.uint8)
    out = np.zeros(y.size_bytes, dtype=np.uint8)
    task = DlaTask(module=module, inputs=(x.registration,), outputs=(y.registration,), statistics=(s.registration,))
    session.upload(x, pack(module.inputs[0], values))
    session.submit([task], options=SubmitOption.NOOP)
    session.download(y, out)
    session.synchronize()
    print("skipped", out.any(), end=" ")
    session.submit([task], options=SubmitOption.SKIP_LOCK)
    session.download(s, found)
    session.download(y, out)
    session.synchronize()
    print("ran", found.any(), np.array_equal(unpack(module.outputs[0], out), values))
with host.open(1) as session:
    module = session.load(b"", LoadOption.FAULT_DIAGNOSTICS)
    y = session.allocate(module.outputs[0].size_bytes)
    out = np.ones(y.size_bytes, dtype=np.uint8)
    task = DlaTask(module=module, inputs=(), outputs=(y.registration,))
    session.submit([task], options=SubmitOption.DIAGNOSTICS)
    session.download(y, out)
    session.synchronize()
    print(len(module.inputs), "faults", out.any())
host.close()
""")
    assert ran.stdout.splitlines() == ["skipped False ran True True", "0 faults False"]


@pytest.mark.parametrize("mode", ["hybrid", "standalone"])
def test_the_command_says_so_where_the_library_counts_no_dla(tmp_path: Path, mode: str) -> None:
    """If there is only libcudla, but no DLA, the command prints one line, exits with code 4, and starts nothing."""
    without = Scenario(machine=machine("rtx-4090"))
    arguments = ["infer", str(tmp_path / "film.mkv"), "--loadable", "net.dla", "--output", "tensors.npz"]
    arguments += ["--dla-mode", mode]
    program = "import sys\nfrom codecfleet.cli.app import run\nsys.exit(run(sys.argv[1:]))"
    ran = run_simulated(program, without, arguments=arguments)
    assert ran.exit_code == 4
    assert ran.stderr.count("\n") == 1
    assert "this machine has no DLA: libcudla counts none" in ran.stderr
    assert not ran.calls("cuInit")
