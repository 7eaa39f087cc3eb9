import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, run_simulated

pytestmark = pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-python is not installed")

PRELUDE = """
import ctypes, json
import numpy as np
from cuda.bindings import driver as cuda

def ask(function, *arguments):
    said, *values = function(*arguments)
    return int(said), (values[0] if len(values) == 1 else values)

def must(function, *arguments):
    said, value = ask(function, *arguments)
    assert said == 0, (function, said)
    return value
"""
START = """
must(cuda.cuInit, 0)
context = must(cuda.cuDevicePrimaryCtxRetain, 0)
must(cuda.cuCtxPushCurrent, context)
"""
COPIES = """
stream = must(cuda.cuStreamCreate, 1)
sent = np.arange(64 * 48, dtype=np.uint8).reshape(48, 64)
linear = must(cuda.cuMemAlloc, sent.nbytes)
pitched, pitch = must(cuda.cuMemAllocPitch, 64, 48, 4)
pinned = must(cuda.cuMemHostAlloc, sent.nbytes, 0)
must(cuda.cuMemcpyHtoDAsync, linear, sent.ctypes.data, sent.nbytes, stream)
copy = cuda.CUDA_MEMCPY2D()
copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.srcPitch, copy.dstDevice, copy.dstPitch = linear, 64, pitched, pitch
copy.WidthInBytes, copy.Height = 64, 48
must(cuda.cuMemcpy2DAsync, copy, stream)
must(cuda.cuStreamSynchronize, stream)
copy.srcDevice, copy.srcPitch = pitched, pitch
copy.dstMemoryType, copy.dstHost, copy.dstPitch = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, pinned, 64
must(cuda.cuMemcpy2D, copy)
event = must(cuda.cuEventCreate, 0)
must(cuda.cuEventRecord, event, stream)
must(cuda.cuStreamWaitEvent, stream, event, 0)
must(cuda.cuEventSynchronize, event)
must(cuda.cuStreamSynchronize, stream)
got = np.frombuffer(ctypes.string_at(pinned, sent.nbytes), np.uint8).reshape(48, 64)
must(cuda.cuMemsetD8, linear, 7, 16)
must(cuda.cuMemcpyDtoH, sent.ctypes.data, linear, 32)
kind = must(cuda.cuPointerGetAttribute, cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, linear)
host = must(cuda.cuPointerGetAttribute, cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned)
past = ask(cuda.cuMemcpyDtoH, sent.ctypes.data, int(linear) + 3000, 100)[0]
must(cuda.cuMemFree, linear)
freed = ask(cuda.cuMemcpyDtoH, sent.ctypes.data, linear, 16)[0]
twice = ask(cuda.cuMemFree, linear)[0]
print(json.dumps([int(got.sum()), pitch, sent[0, :17].tolist(), int(kind), int(host), past, freed, twice]))
"""
CORE = """
from cuda.core import Device, LegacyPinnedMemoryResource, ManagedMemoryResource, PinnedMemoryResource
device = Device(0)
device.set_current()
stream = device.create_stream()
there = device.allocate(256, stream=stream)
here = LegacyPinnedMemoryResource().allocate(256)
view = np.from_dlpack(here)
there.fill(9, stream=stream)
there.copy_to(here, stream=stream)
kinds = [(one.is_device_accessible, one.is_host_accessible) for one in (
    there,
    PinnedMemoryResource().allocate(64, stream=stream),
    ManagedMemoryResource().allocate(64, stream=stream),
)]
event = stream.record()
event.sync()
stream.sync()
assert kinds == [(True, False), (True, True), (True, True)], kinds
print(json.dumps([device.name, device.uuid, list(device.compute_capability), int(view.view(np.uint8).sum())]))
"""
MEMORY = """
context_bytes = (lambda free, total: total - free)(*must(cuda.cuMemGetInfo))
first = must(cuda.cuMemAlloc, 20 << 30)
refused = ask(cuda.cuMemAlloc, 20 << 30)[0]
other = must(cuda.cuDevicePrimaryCtxRetain, 1)
must(cuda.cuCtxPushCurrent, other)
elsewhere = must(cuda.cuMemAlloc, 20 << 30)
must(cuda.cuCtxPopCurrent)
must(cuda.cuMemFree, first)
again = ask(cuda.cuMemAlloc, 20 << 30)[0]
must(cuda.cuDevicePrimaryCtxRelease, 0)
print(json.dumps([context_bytes >> 20, refused, again, ask(cuda.cuMemAlloc, 16)[0]]))
"""
DEVICES = """
said = ask(cuda.cuInit, 0)[0]
count = 0 if said else must(cuda.cuDeviceGetCount)
names = [must(cuda.cuDeviceGetName, 96, n).rstrip(b"\\0 ").decode() for n in range(count)]
uuids = [must(cuda.cuDeviceGetUuid, n).bytes.hex() for n in range(count)]
memory = [must(cuda.cuDeviceTotalMem, n) for n in range(count)]
print(json.dumps([said, names, uuids, memory]))
"""
KERNELS = """
print(json.dumps([ask(cuda.cuModuleLoadData, b"no image")[0], ask(cuda.cuDriverGetVersion)[1]]))
"""


def run(program: str, scenario: Scenario | None = None, visible_devices: str | None = None) -> tuple[Ran, list[object]]:
    """Run a program on the simulated machine, and return what it printed too."""
    ran = run_simulated(
        PRELUDE + program, scenario or Scenario(machine=machine("l4-x4")), visible_devices=visible_devices
    )
    assert ran.exit_code == 0, ran.stderr
    printed: list[object] = json.loads(ran.stdout.splitlines()[-1])
    return ran, printed


def bare(uuid: str) -> str:
    """Return a UUID as cuDeviceGetUuid's bytes are written."""
    return uuid.split("-", 1)[1].replace("-", "")


def test_copies_move_the_bytes_and_wrong_addresses_are_caught() -> None:
    """Copies in one and two dimensions are exact; past the end, after the free and a second free are errors."""
    _, printed = run(START + COPIES)
    total = int(sum(range(256)) * 12)
    assert printed == [total, 512, [7] * 16 + [16], 2, 1, 1, 1, 1]


def test_cuda_core_works_on_the_simulated_device() -> None:
    """cuda.core's device, stream, event and buffers work unmodified."""
    device = machine("l4-x4").devices[0]
    _, printed = run(CORE)
    assert printed == ["NVIDIA L4 (simulated)", device.uuid.removeprefix("GPU-"), [8, 9], 9 * 256]


def test_memory_is_counted_per_device() -> None:
    """A device gives no more memory than it has, gets it back by a free, and ends its context's with it."""
    _, printed = run(START + MEMORY)
    assert printed == [520, 2, 0, 201]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1, 2, 3]), ("2,0", [2, 0]), ("1,9,0", [1]), ("", []), ("-1", []), ("{2}", [2]), ("{1:12},3", [1, 3])],
)
def test_visible_devices_are_those_that_are_named(visible: str | None, expected: list[int]) -> None:
    """CUDA_VISIBLE_DEVICES takes indices and UUIDs (or their beginnings), in order, up to the first wrong one."""
    gpus = [device for device in machine("l4-x4").devices if device.uuid.startswith("GPU-")]
    named = None if visible is None else visible
    for number, device in enumerate(gpus):
        named = named and named.replace(f"{{{number}}}", device.uuid).replace(f"{{{number}:12}}", device.uuid[:12])
    _, printed = run(DEVICES, visible_devices=named)
    assert printed[0] == (0 if expected else 100)
    assert printed[2] == [bare(gpus[number].uuid) for number in expected]


def test_a_mig_instance_is_a_device_of_its_own() -> None:
    """A MIG UUID shows that instance alone, with its memory; without one the first instance is shown."""
    node = machine("a100-mig")
    cut = next(device for device in node.devices if device.slices)
    second = cut.slices[1]
    _, by_uuid = run(DEVICES, Scenario(machine=node), second.uuid)
    _, by_default = run(DEVICES, Scenario(machine=node))
    assert by_uuid == [0, [f"{cut.name} MIG {second.profile} (simulated)"], [bare(second.uuid)], [second.memory_bytes]]
    assert by_default[2] == [bare(cut.slices[0].uuid)]


def test_a_compute_instance_has_the_memory_of_its_gpu_instance() -> None:
    """One is named by its UUID, or by its GPU's UUID and two numbers; what both allocate is counted together."""
    node = machine(Path(__file__).with_name("parts.toml"), "cut")
    gpu = node.devices[0]
    first, second, *_, last = gpu.slices
    expected = [0, [f"{gpu.name} MIG 1c.3g.20gb (simulated)"], [bare(second.uuid)], [second.memory_bytes]]
    for named in (second.uuid, f"MIG-{gpu.uuid}/1/1", f"{second.uuid},{last.uuid},0"):
        _, printed = run(DEVICES, Scenario(machine=node), named)
        assert printed == expected
    used = f"""{START}
import pynvml
must(cuda.cuMemAlloc, 64 << 20)
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in {[first.uuid, second.uuid, last.uuid]!r}]
print(json.dumps([pynvml.nvmlDeviceGetMemoryInfo(handle).used >= 64 << 20 for handle in handles]))
"""
    _, printed = run(used, Scenario(machine=node), second.uuid)
    assert printed == [True, True, False]


def test_the_beginning_of_a_uuid_must_tell_gpus_apart() -> None:
    """A beginning that several GPUs share names none of them, and ends the list."""
    gpus = [device for device in machine("l4-x4").devices if device.uuid.startswith("GPU-")]
    _, shared = run(DEVICES, visible_devices=f"1,{gpus[0].uuid[:4]},2")
    assert shared[2] == [bare(gpus[1].uuid)]


@pytest.mark.parametrize(("driver", "version"), [("535.183.01", 12020), ("580.126.20", 13000), ("590.10", 13010)])
def test_the_driver_says_its_version_and_runs_no_kernels(driver: str, version: int) -> None:
    """The CUDA version is that of the driver's branch; a kernel is refused, and the trace says so."""
    ran, printed = run(START + KERNELS, Scenario(machine=machine("l4-x4"), driver=driver))
    assert printed == [801, version]
    assert ran.told("cuModuleLoadData")[0].values == {"refused": "kernels-cannot-run"}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(function="cuMemAlloc", action=Action.STATUS, value=46, call=2), [0, 46, 0]),
        (Fault(function="cuMemAlloc", action=Action.LOSE, call=2), [0, 999, 999]),
        (Fault(function="cuMemAlloc", action=Action.LOSE, device=1, call=2), [0, 0, 0]),
        (Fault(function="cuMemAlloc", action=Action.XID, value=31, call=2), [0, 0, 0]),
        (Fault(function="cuMemAlloc", action=Action.SLOW, value=1), [0, 0, 0]),
    ],
)
def test_faults_befall_cuda_calls(fault: Fault, expected: list[int]) -> None:
    """A call of the driver API meets its fault, and the calls around it do not."""
    program = START + "print(json.dumps([ask(cuda.cuMemAlloc, 4096)[0] for _ in range(3)]))\n"
    _, printed = run(program, Scenario(machine=machine("l4-x4"), faults=(fault,)))
    assert printed == expected


def test_a_process_may_end_or_hang_in_a_call() -> None:
    """``exit`` ends the process with its code, ``hang`` never returns."""
    node = machine("l4-x4")
    end = Scenario(machine=node, faults=(Fault(function="cuInit", action=Action.EXIT, value=9),))
    hang = Scenario(machine=node, faults=(Fault(function="cuInit", action=Action.HANG),))
    assert run_simulated(PRELUDE + START, end).exit_code == 9
    assert run_simulated(PRELUDE + START, hang, timeout_s=3).exit_code is None


def test_a_machine_without_devices_has_a_driver_and_no_gpu() -> None:
    """The driver starts and says that there is no device."""
    node = machine("l4-x4")
    _, printed = run(DEVICES, Scenario(machine=replace(node, devices=())))
    assert printed == [100, [], [], []]
