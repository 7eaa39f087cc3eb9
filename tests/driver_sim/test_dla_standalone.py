"""cuDLA's standalone mode with NvSciBuf and NvSciSync, under the libraries' real names: rules and faults."""

from pathlib import Path

import pytest

from .scenario import Action, Fault
from .test_dla import run

STANDALONE = """
from codecfleet.actors.dla.engine.states import DlaMode
def opened(**limits):
    return open_host(Timing(limits=TimeLimits(**limits)), DlaMode.STANDALONE)
"""

RAW = """
import ctypes
from codecfleet.actors.dla.engine.library import CudlaLibrary
from codecfleet.actors.dla.engine.statuses import CudlaFailure
from codecfleet.actors.dla.engine.tasks import TaskEvents, TaskMemory
from codecfleet.actors.dla.nvsci.syncs import Fence
def status(call, *arguments):
    try:
        call(*arguments)
    except CudlaFailure as failure:
        return failure.status.name
    return "SUCCESS"
host = opened()
session = host.open(0)
task, y = prepared(session)
library = CudlaLibrary()
def submitted(memory, stream=0):
    return status(library.call, "cudlaSubmitTask", session.handle, memory.address, memory.count, stream, 0)
def events(*waits, end=None):
    return TaskEvents(waits=waits, semaphore=session._done.dla_address, end=end or Fence())
"""


def test_standalone_mode_needs_no_cuda() -> None:
    """A task runs without any call of libcuda, and everything is released in order."""
    ran = run(
        STANDALONE
        + """
host = opened()
session = host.open(1)
task, y = prepared(session)
session.submit([task])
found = np.zeros(y.size_bytes, np.uint8)
session.download(y, found)
session.synchronize()
print(bool((unpack(task.module.outputs[0], found) == 2 * values).all()), host.version())
host.close()
"""
    )
    assert ran.stdout.strip() == "True (1, 2, 1)"
    calls = [line.function for line in ran.trace if line.is_call]
    assert not [name for name in calls if name.startswith("cu") and not name.startswith("cudla")]
    order = ("cudlaTask.dla1", "cudlaMemUnregister", "cudlaModuleUnload", "cudlaDestroyDevice", "NvSciBufObjFree")
    places = [calls.index(name) for name in order]
    assert places == sorted(places)
    assert calls.index("cudlaDestroyDevice") < calls.index("NvSciSyncObjFree") < calls.index("NvSciBufModuleClose")
    assert len(calls) - 1 - calls[::-1].index("cudlaMemUnregister") < calls.index("cudlaModuleUnload")
    left = [line.values["left"] for line in ran.trace if line.function == "NvSciBufModuleClose" and not line.is_call]
    assert left == ["0"]


def test_the_library_enforces_what_the_guide_leaves_to_the_caller() -> None:
    """A stream, a second signal event, a duplicate fence and CUDA memory are each refused."""
    ran = run(
        STANDALONE
        + RAW
        + """
print(submitted(TaskMemory([task], events()), stream=1))
event = session.event()
fence = session.fence(event)
print(submitted(TaskMemory([task], events(fence, fence))))
memory = TaskMemory([task, task], events())
records = np.ctypeslib.as_array((ctypes.c_uint64 * 12).from_address(memory.address))
records[5] = records[11]  # the first task signals, too
print(submitted(memory))
print(status(library.call, "cudlaGetNvSciSyncAttributes", 0, 1))
print(submitted(TaskMemory([task], events(fence))))
session.signal(event)
end = Fence()
print(submitted(TaskMemory([task], events(end=end))))
session._sci.syncs.wait(end)
session.synchronize()
host.close()
"""
    )
    refused = ["INVALID_PARAM"] * 4
    assert ran.stdout.split() == [*refused, "SUCCESS", "SUCCESS"]


def test_an_error_comes_out_after_the_fence() -> None:
    """The fence of a failed task is reached, and the handle then reports the error, after which the session is lost."""
    ran = run(
        STANDALONE
        + """
host = opened()
session = host.open(0)
task, _ = prepared(session)
session.submit([task])
told(session.synchronize)
told(session.attributes)
host.close()
print(session.state.value)
""",
        Fault(function="cudlaTask", action=Action.STATUS, value=0x40000001, call=1),
    )
    first, later, state = ran.stdout.splitlines()
    assert first.startswith("EngineFailed ELSEWHERE DLA 0: cudlaSubmitTask: the engine refused the task's input")
    assert later.startswith("DeviceLost ELSEWHERE DLA 0 failed earlier")
    assert state == "abandoned"


def test_a_thread_may_spin() -> None:
    """With ``Waiting.SPIN`` the fence is polled; the task's result is the same."""
    ran = run(
        STANDALONE
        + """
from codecfleet.actors.device.memory_choice import Waiting
host = open_host(Timing(waiting=Waiting.SPIN), DlaMode.STANDALONE)
session = host.open(0)
task, y = prepared(session)
session.submit([task])
session.synchronize()
print(bool((unpack(task.module.outputs[0], session.view(y)) == 2 * values).all()))
host.close()
""",
        Fault(function="cudlaTask", action=Action.SLOW, value=50),
    )
    assert ran.stdout.strip() == "True"
    assert len(ran.calls("NvSciSyncFenceWait")) > 1


@pytest.mark.parametrize("missing", ["libcudla.so.1", "libnvscibuf.so.1", "libnvscisync.so.1"])
def test_a_missing_library_is_named(missing: str) -> None:
    """If one of the needed libraries is missing, one line names it, and another says what to do."""
    ran = run(
        STANDALONE
        + f"""
import ctypes
real = ctypes.CDLL
def load(name, *rest, **more):
    if name == "{missing}":
        raise OSError(name + ": cannot open shared object file")
    return real(name, *rest, **more)
from codecfleet.actors.dla.engine.host import open_standalone
told(lambda: open_standalone(load))
"""
    )
    assert ran.stdout.startswith("Unsupported NEVER this machine cannot reach a DLA in standalone mode: " + missing)


@pytest.mark.ray
@pytest.mark.slow
def test_the_command_infers_in_standalone_mode(tmp_path: Path, film: Path) -> None:
    """``codecfleet infer --dla-mode standalone`` gives the tensors of hybrid mode, byte for byte, without CUDA."""
    from .test_infer import infer

    (tmp_path / "hybrid").mkdir()
    (tmp_path / "standalone").mkdir()
    options = ["--end", "3"]
    beside = infer(film, tmp_path / "hybrid", options=options)
    alone = infer(film, tmp_path / "standalone", options=[*options, "--dla-mode", "standalone", "--dla-wait", "spin"])
    assert {name: array.tobytes() for name, array in alone.tensors.items()} == {
        name: array.tobytes() for name, array in beside.tensors.items()
    }
    assert alone.report["frames"] == 72
    assert alone.calls["cudlaTask"]
    assert not alone.calls["cudlaMemRegister"]
    assert alone.calls["cudlaImportExternalMemory"]
