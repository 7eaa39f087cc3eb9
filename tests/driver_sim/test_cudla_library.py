"""The simulated cuDLA: its arithmetic, and what goes wrong in it, through the real binding."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.engines import Engine

from .loadable import DataFormat, DataType, Loadable, Operation, Tensor
from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

pytest.importorskip("cuda.bindings.cudla", reason="cuda-python is not installed")

OTHER_ERROR, ENGINE_TIMEOUT, DATA_MISMATCH = 0x4000_0001, 0x4000_0006, 0x4000_0007
EXTERNAL_DEVICE = 911
PRELUDE = """
import json, time
import numpy as np
from cuda.bindings import cudla, driver
from tests.driver_sim.cudla_calls import Hybrid, cuda, status, use_cuda
from tests.driver_sim.loadable import DataFormat, DataType, Loadable, Operation, Tensor
x, y = Tensor("x", (1, 2, 3, 5)), Tensor("y", (1, 2, 3, 5))
DOUBLE = Loadable(Operation.AFFINE, (x,), (y,), scale=2.0)
VALUES = np.arange(30, dtype=np.float32).reshape(x.shape)
def slow(busy_ms):
    return Loadable(Operation.AFFINE, (x,), (y,), scale=2.0, busy_us=1000 * busy_ms)
def is_doubled(found, times=2):
    return bool((found == VALUES * times).all())
"""
ORIN = machine("orin")
IGPU = replace(ORIN.devices[0], memory_bytes=ORIN.memory_bytes)
ORIN = replace(ORIN, devices=(IGPU, *ORIN.devices[1:]))


def ran(program: str, *faults: Fault, environment: dict[str, str] | None = None) -> Ran:
    """Run a program on an Orin."""
    return run_simulated(PRELUDE + program, Scenario(machine=ORIN, faults=faults), environment=environment)


def run(program: str, *faults: Fault, environment: dict[str, str] | None = None) -> Any:
    """Run a program on an Orin, and return what it printed."""
    done = ran(program, *faults, environment=environment)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def engine_fault(action: Action, value: int | None = None, *, dla: int | None = None, call: int | None = None) -> Fault:
    """Return a fault of an engine while it runs a task."""
    function = "cudlaTask" if dla is None else f"cudlaTask.dla{dla}"
    return Fault(function=function, action=action, value=value, call=call)


# Loadables


@given(
    shape=st.tuples(*[st.integers(1, 4)] * 4),
    data_type=st.sampled_from(DataType),
    data_format=st.sampled_from(DataFormat),
    row_multiple_bytes=st.sampled_from([1, 16, 32, 64]),
)
def test_what_is_packed_is_unpacked(
    shape: tuple[int, int, int, int], data_type: DataType, data_format: DataFormat, row_multiple_bytes: int
) -> None:
    """Values come back from a tensor's memory as they went in, whatever its layout, and fill what it says it takes."""
    tensor = Tensor("x", shape, data_type, data_format, row_multiple_bytes)
    values = np.arange(np.prod(shape)).astype(data_type.numpy).reshape(shape)
    packed = tensor.packed(values)
    assert len(packed) == tensor.size_bytes
    assert (tensor.unpacked(packed) == values).all()


def test_what_is_expected_is_rounded_and_kept_in_range() -> None:
    """Integers are rounded half to even and kept in their type's range, and what is not a number is 0."""
    x, y = Tensor("x", (1, 1, 1, 5)), Tensor("y", (1, 1, 1, 5), DataType.UINT8)
    (found,) = Loadable(Operation.AFFINE, (x,), (y,)).expected([np.array([0.5, 1.5, -3, 300, np.nan], np.float32)])
    assert found.ravel().tolist() == [0, 2, 0, 255, 0]


# Tasks


def test_every_operation_computes_what_it_says() -> None:
    """All operations give the expected outputs, in all data types and formats, with padded rows."""
    program = """
use_cuda()
rng = np.random.default_rng(4)
def cases():
    for kind in DataType:
        for layout in DataFormat:
            a, b = (Tensor(name, (2, 3, 4, 6), kind, layout) for name in "ab")
            yield Loadable(Operation.AFFINE, (a, b), (b, Tensor("c", b.shape, DataType.FLOAT, layout, 64)), 1.5, -2.25)
            yield Loadable(Operation.SUM, (a, b), (Tensor("c", a.shape, DataType.HALF),), 0.5, 1.0)
            yield Loadable(Operation.BOX_MEAN, (a,), (Tensor("c", (2, 3, 2, 2), DataType.INT8),), 3.0)
            yield Loadable(Operation.ARGMAX, (a,), (Tensor("c", (2, 1, 1, 1), DataType.INT32),))
wrong = []
count = 0
for case in cases():
    dla = Hybrid(case, count % 2)
    values = [rng.integers(0, 100, tensor.shape).astype(tensor.data_type.numpy) for tensor in case.inputs]
    dla.put(values)
    dla.submit()
    found, expected = dla.get(), case.expected(values)
    count += 1
    if not all((one == other).all() and one.dtype == other.dtype for one, other in zip(found, expected, strict=True)):
        wrong.append(repr(case))
    dla.close()
print(json.dumps([count, wrong]))
"""
    assert run(program) == [56, []]


def test_descriptors_arrive_as_they_were_written() -> None:
    """Each attribute of a module is what its loadable says: numbers, names, sizes, shapes, kinds and strides."""
    program = """
use_cuda()
case = Loadable(Operation.SUM, (x, Tensor("second", x.shape, DataType.HALF)), (y,),
                statistics=(Tensor("layers", (1, 1, 1, 8)),))
dla = Hybrid(case)
def told(kind):
    found = cudla.module_get_attributes(dla.module, kind)
    if isinstance(found, int):
        return found
    return [[each.name, each.size_, each.n, each.c, each.h, each.w, each.data_type, each.data_format,
             [int(stride) for stride in each.stride]] for each in found]
print(json.dumps([told(kind) for kind in range(6)] + [status(cudla.module_get_attributes, dla.module + 64, 0)]))
"""
    half = Tensor("second", (1, 2, 3, 5), DataType.HALF)
    counts = run(program)
    assert counts[:2] == [2, 1]
    assert counts[2][1] == ["second", half.size_bytes, 1, 2, 3, 5, 2, 1, [*half.strides, 0, 0, 0, 0]]
    assert [each[0] for each in counts[3]] == ["y"]
    assert (counts[4], [each[0] for each in counts[5]], counts[6]) == (1, ["layers"], 12)


def test_tasks_and_copies_of_a_stream_run_in_their_order() -> None:
    """Tasks of one list and of several handles, between copies in one stream, each see what came before."""
    program = """
use_cuda()
stream = int(cuda(driver.cuStreamCreate(0)))
first, second = Hybrid(slow(20), 0, stream), Hybrid(slow(0), 1, stream)
there = cudla.mem_register(second.handle, first.outputs[0][0], y.size_bytes, 0)
first.put([VALUES])
back = first.task([first.outputs[0][1]], [first.inputs[0][1]])
first.submit(first.task(), back, first.task())
second.submit(second.task([there]))
(found,) = second.get()
print(json.dumps([is_doubled(found, 16), first.error(), second.error()]))
"""
    assert run(program) == [True, 0, 0]


def test_an_engine_runs_one_task_at_a_time() -> None:
    """Tasks of two handles of one DLA, in streams of their own, take as long as both together."""
    program = """
use_cuda()
handles = [Hybrid(slow(100), 0) for _ in range(2)]
for each in handles:
    each.put([VALUES])
started = time.monotonic()
for each in handles:
    each.submit()
said = [each.synchronize() for each in handles]
print(json.dumps([said, time.monotonic() - started >= 0.2]))
"""
    assert run(program) == [[0, 0], True]


def test_a_task_is_still_running_when_its_submission_returns() -> None:
    """A submission does not wait; the stream is not ready until the task is done, and then the output is there."""
    program = """
use_cuda()
dla = Hybrid(slow(200))
dla.put([VALUES])
dla.submit()
busy = int(driver.cuStreamQuery(dla.stream)[0])
done = dla.synchronize()
print(json.dumps([busy, done, int(driver.cuStreamQuery(dla.stream)[0]), is_doubled(dla.get()[0])]))
"""
    assert run(program) == [600, 0, 0, True]


def test_memory_is_registered_once_and_checked() -> None:
    """Registering again is MemoryRegistered and harms nothing; unaligned or other memory is refused."""
    program = """
use_cuda()
dla = Hybrid(DOUBLE)
address, registered = dla.inputs[0]
again = status(cudla.mem_register, dla.handle, address, x.size_bytes, 0)
dla.put([VALUES])
dla.submit()
host = np.zeros(4096, np.uint8)
print(json.dumps([
    again, is_doubled(dla.get()[0]),
    status(cudla.mem_register, dla.handle, address + 8, 8, 0),
    status(cudla.mem_register, dla.handle, host.ctypes.data // 32 * 32 + 32, 64, 0),
    status(cudla.mem_register, dla.handle, address + 32, 1 << 40, 0),
    status(cudla.mem_unregister, dla.handle, address),
    status(dla.submit, dla.task([address])),
    status(cudla.mem_unregister, dla.handle, registered),
    status(cudla.mem_register, dla.handle, address, x.size_bytes, 0),
]))
"""
    assert run(program) == [11, True, 4, 4, 4, 4, 4, 0, 0]


def test_a_handle_takes_one_loadable_in_its_life() -> None:
    """What is not a loadable is refused by the runtime, a second one by cuDLA, even after the first was unloaded."""
    program = """
use_cuda()
content = DOUBLE.to_bytes()
handle = cudla.create_device(0, 0)
def load(some):
    return status(cudla.module_load_from_memory, handle, some, len(some), 0)
bad = [load(some) for some in (content[:-1], content[:20], b"x" * 400, content[:12] + b"\\x09" + content[13:])]
good = load(content)
dla = Hybrid(DOUBLE)
second = status(cudla.module_load_from_memory, dla.handle, content, len(content), 0)
task = dla.task()
unloaded = status(cudla.module_unload, dla.module, 0)
print(json.dumps([
    bad, good, second, unloaded, status(cudla.module_unload, dla.module, 0),
    status(cudla.module_load_from_memory, dla.handle, content, len(content), 0), status(dla.submit, task),
]))
"""
    assert run(program) == [[7, 7, 7, 7], 0, 13, 0, 12, 13, 12]


def test_tasks_that_do_not_fit_are_refused_before_any_runs() -> None:
    """A list with one wrong task, events beside CUDA, and unknown flags are refused, and nothing of them runs."""
    program = """
use_cuda()
dla = Hybrid(DOUBLE)
dla.put([VALUES])
few, many = dla.task(), dla.task(outputs=[dla.outputs[0][1]] * 3)
few.input_tensor = []
events = dla.task()
waits = cudla.WaitEvents()
events.wait_events = waits.ptr
refused = [status(dla.submit, dla.task(), wrong) for wrong in (many, events)]
refused.append(status(lambda: dla.submit(flags=8)))
before = dla.get()[0]
dla.submit(flags=1)
skipped = dla.get()[0]
dla.submit(flags=2)
print(json.dumps([refused, float(before.sum()), float(skipped.sum()), is_doubled(dla.get()[0]), dla.error()]))
"""
    assert run(program) == [[1, 13, 1], 0.0, 0.0, True, 0]


def test_devices_are_counted_and_handles_are_limited() -> None:
    """An Orin has two; one more than there is, a 17th handle of one, and a handle that is none are refused by name."""
    program = """
count = int(cudla.device_get_count())
without = status(cudla.create_device, 0, 0)
use_cuda()
wrong = status(cudla.create_device, count, 0)
handles = [cudla.create_device(0, 0) for _ in range(16)]
full = status(cudla.create_device, 0, 0)
other = status(cudla.create_device, 1, 0)
cudla.destroy_device(handles.pop())
again = status(cudla.create_device, 0, 0)
told = cudla.device_get_attribute(handles[0], 1).device_version
print(json.dumps([int(cudla.get_version()), count, without, wrong, full, other, again, told,
                  status(cudla.destroy_device, 64), status(cudla.get_version)]))
"""
    assert run(program) == [1002001, 2, 6, 1, 2, 0, 0, 2, 8, 0]


@pytest.mark.parametrize(("fleet", "count"), [("rtx-4090", 0), ("thor", 0)])
def test_a_machine_without_accelerators_counts_none(fleet: str, count: int) -> None:
    """That the library is there does not mean that there is an accelerator."""
    program = "from cuda.bindings import cudla\nprint(cudla.device_get_count())"
    assert run_simulated(program, Scenario(machine=machine(fleet))).stdout.strip() == str(count)


def test_a_discrete_gpu_is_refused() -> None:
    """Beside a GPU that is not a Tegra's, hybrid mode is an unsupported operation."""
    gpu = replace(machine("rtx-4090").devices[0], engines={Engine.DLA: 1})
    node = replace(machine("rtx-4090"), devices=(gpu,))
    done = run_simulated(PRELUDE + "use_cuda()\nprint(status(cudla.create_device, 0, 0))", Scenario(machine=node))
    assert done.stdout.strip() == "13", done.stderr


def test_an_error_of_the_engine_is_found_later_and_stays() -> None:
    """The submission succeeds; the stream says ExternalDevice, every later call too, and the handle says which."""
    program = """
use_cuda()
bad, good = Hybrid(slow(50), 0), Hybrid(DOUBLE, 1)
for each in (bad, good):
    each.put([VALUES])
good.submit()
bad.submit()
found = [good.synchronize() in (0, 911), bad.synchronize(), int(driver.cuCtxSynchronize()[0])]
print(json.dumps([*found, bad.error(), bad.error(), good.error(), status(bad.submit)]))
"""
    fault = engine_fault(Action.STATUS, OTHER_ERROR, dla=0)
    assert run(program, fault) == [True, 911, 911, OTHER_ERROR, OTHER_ERROR, 0, OTHER_ERROR]


def test_isolated_errors_leave_cuda_alone() -> None:
    """With CUDA_EXTERNAL_ENGINE_EXECUTION_MODE=2 CUDA goes on, and only the handle tells of the error."""
    program = """
use_cuda()
dla = Hybrid(DOUBLE)
dla.put([VALUES])
dla.submit()
print(json.dumps([dla.synchronize(), dla.error()]))
"""
    environment = {"CUDA_EXTERNAL_ENGINE_EXECUTION_MODE": "2"}
    found = run(program, engine_fault(Action.CORRUPT), environment=environment)
    assert found == [0, DATA_MISMATCH]


def test_hung_firmware_ends_with_the_time_out_of_the_task() -> None:
    """A task that never ends keeps its stream busy until its time is over, and then is an engine time-out."""
    program = """
use_cuda()
hung, good = Hybrid(DOUBLE, 0), Hybrid(DOUBLE, 1)
bounds = [status(cudla.set_task_timeout_in_ms, hung.handle, value) for value in (0, 1_000_001, 1_000_000, 100)]
hung.put([VALUES])
good.put([VALUES])
started = time.monotonic()
hung.submit()
good.submit()
said = hung.synchronize()
waited = time.monotonic() - started
print(json.dumps([bounds, said, hung.error(), waited >= 0.1, good.error()]))
"""
    found = run(program, engine_fault(Action.HANG, dla=0))
    assert found == [[1, 1, 0, 0], EXTERNAL_DEVICE, ENGINE_TIMEOUT, True, 0]


def test_a_submission_can_fail_at_once() -> None:
    """A fault of the call itself is its status, and no task was submitted."""
    program = """
use_cuda()
dla = Hybrid(DOUBLE)
dla.put([VALUES])
statuses = [status(dla.submit) for _ in range(2)]
print(json.dumps([statuses, is_doubled(dla.get()[0])]))
"""
    fault = Fault(function="cudlaSubmitTask", action=Action.STATUS, value=7, call=1)
    done = ran(program, fault)
    assert json.loads(done.stdout) == [[7, 0], True]
    assert len(done.calls("cudlaSubmitTask")) == 2
    assert len(done.calls("cudlaTask")) == 1
    assert done.told("cudlaSubmitTask")[0].values == {"tasks": "1", "stream": "1", "flags": "0"}


def test_a_handle_that_is_destroyed_with_tasks_ends_the_process() -> None:
    """Who does not drain a handle before destroying it is told so, by the crash that the reference speaks of."""
    program = """
use_cuda()
dla = Hybrid(slow(60_000))
dla.submit()
cudla.destroy_device(dla.handle)
"""
    done = ran(program)
    assert done.exit_code == -6
    assert "1 unfinished tasks of DLA 0" in done.stderr
