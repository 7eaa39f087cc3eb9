"""Hosts, sessions and networks on fake DLAs that fail."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from codecfleet.actors.device.memory_choice import Waiting
from codecfleet.actors.dla.engine.cuda_calls import CONTEXT_ACTIVE
from codecfleet.actors.dla.engine.host import EXECUTION_MODE, isolate_errors, require_dlas
from codecfleet.actors.dla.engine.states import DlaSessionState
from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.actors.dla.engine.watchdog import TimeLimits, Timing
from codecfleet.actors.dla.inference.network import read_loadable
from codecfleet.errors import (
    CodecfleetError,
    DeviceLost,
    EngineFailed,
    EngineHung,
    InputNotFound,
    InputUnreadable,
    Unsupported,
    UsageError,
)
from codecfleet.testing.nvidia.fake_cudla import HANG, FakeMachine

from ..dla_machines import Machine, machine, prepared

__all__ = ["machine"]


def test_errors_are_isolated_before_cuda_starts(machine: Machine) -> None:
    """Opening a host isolates a DLA's errors from CUDA, and never sets the bit that removes the order of streams."""
    machine.host()
    assert machine.environment == {EXECUTION_MODE: "2"}
    given = {EXECUTION_MODE: "3"}
    isolate_errors(given)
    assert given == {EXECUTION_MODE: "2"}


def test_a_machine_without_dlas_says_so() -> None:
    """A missing binding, library or device is ``Unsupported`` (exit code 4), each with its own message."""

    def missing(name: str) -> object:
        raise ImportError(name)

    class NoLibrary:
        """A binding without libcudla."""

        CudlaError = ValueError

        def device_get_count(self) -> int:
            message = 'Failure finding "libcudla.so.1"'
            raise RuntimeError(message)

    for import_module, words in (
        (missing, "cuda.bindings is not installed"),
        (lambda _name: NoLibrary(), "there is no libcudla.so.1"),
        (FakeMachine(dlas=0).import_module, "libcudla counts none"),
    ):
        with pytest.raises(Unsupported, match=words) as caught:
            require_dlas(import_module=import_module)
        assert caught.value.exit_code == 4


def test_a_host_knows_its_machine(machine: Machine) -> None:
    """A host knows the number of DLAs and cuDLA's version, and refuses a DLA that does not exist."""
    host = machine.host()
    assert (host.count, host.version()) == (3, (1, 2, 1))
    with pytest.raises(Unsupported, match="no DLA 3: this machine has 3"):
        host.open(3)


@pytest.fixture
def machine_without_limits(machine: Machine) -> Machine:
    """A machine whose libcudla lacks ``cudlaSetTaskTimeoutInMs``, as CUDA for Tegra describes it."""

    class FunctionNotFoundError(RuntimeError):
        """The error that the binding raises for a missing function."""

    def absent(*_: object) -> None:
        raise FunctionNotFoundError

    machine.fake.set_task_timeout_in_ms = absent  # type: ignore[method-assign]
    return machine


def test_the_watchdog_keeps_the_limit_that_cudla_cannot(machine_without_limits: Machine) -> None:
    """A time limit also works without ``cudlaSetTaskTimeoutInMs``: a task that exceeds the limit counts as hung."""
    session = machine_without_limits.host().open(0)
    session.set_task_limit(2)
    machine_without_limits.fake.fault("cuStreamSynchronize", 1, HANG)
    session.submit([prepared(session)])
    with pytest.raises(EngineHung, match="cuStreamSynchronize did not return within"):
        session.synchronize()


def test_errors_of_cuda_that_no_dla_explains_are_final_too(machine: Machine) -> None:
    """After an illegal address in CUDA, the session has failed."""
    session = machine.host().open(0)
    machine.fake.fault("cuMemAlloc", 1, 700)
    with pytest.raises(DeviceLost, match="cuMemAlloc failed with CUDA error 700"):
        session.allocate(16)
    assert session.state is DlaSessionState.FAILED


def test_closing_tells_of_late_errors(machine: Machine) -> None:
    """Closing a session raises the error of a task that failed unnoticed, and destroys nothing."""
    machine.fake.isolated = True
    session = machine.host().open(0)
    machine.fake.fault("cudlaTask", 1, CudlaStatus.DLA_INVALID_INPUT)
    session.submit([prepared(session)])
    with pytest.raises(EngineFailed, match="refused the task's input"):
        session.close()
    assert session.state is DlaSessionState.ABANDONED
    assert machine.fake.open_handles == 1


def test_a_hang_while_draining_is_noticed(machine: Machine) -> None:
    """Closing waits for tasks no longer than the watchdog allows."""
    session = machine.host().open(0)
    session.submit([prepared(session)])
    machine.fake.fault("cuStreamSynchronize", 1, HANG)
    with pytest.raises(EngineHung):
        session.close()
    assert session.state is DlaSessionState.ABANDONED


def test_every_stream_with_tasks_is_waited_for(machine: Machine) -> None:
    """A session waits once for each stream that has its tasks, whether the session made the stream or not."""
    session = machine.host().open(0)
    task = prepared(session)
    session.synchronize()
    machine.fake.streams_waited.clear()
    session.submit([task], stream=0x77)
    session.submit([task], stream=0x77)
    session.synchronize()
    assert machine.fake.streams_waited == [0x77]
    session.submit([task])
    session.close()
    assert machine.fake.streams_waited == [0x77, session.stream]


def test_nothing_piles_up_from_round_to_round(machine: Machine) -> None:
    """The wait does not grow from round to round, since finished tasks and closed sessions are forgotten."""
    waits: list[float] = []

    def patience(future: Future[Any], seconds: float) -> bool:
        waits.append(seconds)
        return machine.fake.patience(future, seconds)

    host = machine.host(Timing(limits=TimeLimits(task_s=2, grace_s=1, call_s=50), clock=lambda: 7.0, patience=patience))
    session = host.open(0)
    task = prepared(session)
    for _ in range(3):
        session.submit([task, task])
        session.synchronize()
    assert [seconds for seconds in waits if seconds != 50] == [5, 5] * 3
    assert session._in_flight == []
    session.close()
    assert host._sessions == []


def test_a_session_that_fails_while_closing_takes_the_others_with_it(machine: Machine) -> None:
    """The host raises the first error, abandons every session, and keeps the context, which open handles need."""
    host = machine.host()
    sessions = [host.open(number) for number in range(3)]
    machine.fake.fault("cudlaDestroyDevice", 2, CudlaStatus.OS)
    with pytest.raises(DeviceLost, match="DLA 1: cudlaDestroyDevice: the operating system failed"):
        host.close()
    states = [session.state for session in sessions]
    assert states == [DlaSessionState.CLOSED, DlaSessionState.ABANDONED, DlaSessionState.ABANDONED]
    assert "cuDevicePrimaryCtxRelease" not in machine.fake.calls


def test_loadables_are_read_or_refused(tmp_path: Path) -> None:
    """A missing or empty loadable is an input error with the file's name."""
    with pytest.raises(InputNotFound, match=r"nothing\.dla"):
        read_loadable(str(tmp_path / "nothing.dla"))
    (tmp_path / "empty.dla").touch()
    for wrong in (tmp_path / "empty.dla", tmp_path):
        with pytest.raises(CodecfleetError) as caught:
            read_loadable(str(wrong))
        assert isinstance(caught.value, InputUnreadable)


def test_a_dla_is_coupled_with_the_integrated_gpu(machine: Machine) -> None:
    """Even if a discrete GPU comes first, the context is that of the integrated GPU; its threads block in waits."""
    machine.fake.integrated = (False, True)
    session = machine.host().open(0)
    assert session.state is DlaSessionState.IDLE
    assert machine.fake.context_gpus == [1]
    assert machine.fake.context_flags == {1: Waiting.BLOCK.value}


@pytest.mark.parametrize("waiting", Waiting)
def test_a_thread_waits_as_it_is_asked_to(machine: Machine, waiting: Waiting) -> None:
    """The flag for blocking, spinning or CUDA's own choice is set before the context is made."""
    machine.host(Timing(waiting=waiting)).open(0)
    assert set(machine.fake.context_flags.values()) == {waiting.value}


def test_a_context_that_somebody_made_keeps_its_flags(machine: Machine) -> None:
    """If a driver before CUDA 11 refuses flags for an existing context, this is ignored; other refusals are errors."""
    machine.fake.fault("cuDevicePrimaryCtxSetFlags", 1, CONTEXT_ACTIVE)
    assert machine.host().open(0).state is DlaSessionState.IDLE
    machine.fake.fault("cuDevicePrimaryCtxSetFlags", 1, 101)
    with pytest.raises(DeviceLost, match="cuDevicePrimaryCtxSetFlags failed with CUDA error 101"):
        machine.host()


def test_a_stream_under_capture_is_refused(machine: Machine) -> None:
    """Nothing is queued during a stream's capture, since cuDLA does not support CUDA graphs; later tasks run."""
    host = machine.host()
    session = host.open(0)
    task = prepared(session)
    machine.fake.capturing.add(session.stream)
    with pytest.raises(UsageError, match="capture"):
        session.submit([task])
    assert session.state is DlaSessionState.IDLE
    machine.fake.capturing.clear()
    session.submit([task])
    session.synchronize()
    assert machine.fake.tasks_of == {0: 1}
    host.close()
