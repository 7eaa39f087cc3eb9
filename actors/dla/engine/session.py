"""A DLA session apart from CUDA: its contract, its state, its checks, its calling thread, and how it maps errors."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from ....errors import CodecfleetError, DeviceLost, EngineHung, UsageError
from ...watchdog import CallThread, Patience, wait_for
from .library import CudlaBinding, ModuleAttribute
from .states import LIVE, DlaEvent, DlaSessionState, next_state
from .statuses import CudlaFailure, CudlaStatus, FunctionMissing, error_of, is_final
from .tasks import Access, DeviceAttributes, DlaModule, DlaTask, LoadOption, Registration, SubmitOption, TaskMemory
from .tensors import TensorDescriptor
from .watchdog import Deadlines, TimeLimits

ResultT = TypeVar("ResultT")

TASK_LIMIT_MAX_S = 1000.0
PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD, which cuDLA does not support (CUDA for Tegra 5.4)."""
_SEE_DOCS = "docs/dla.md says how sessions are used."


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time limits, and how time passes: tests give a clock and a patience of their own."""

    limits: TimeLimits = field(default_factory=TimeLimits)
    clock: Callable[[], float] = monotonic
    patience: Patience = wait_for


class DlaSession(ABC):
    """One cuDLA device handle: a loadable, its memory, and the tasks that run it. A subclass couples it with CUDA.

    Tasks are asynchronous: ``submit`` returns when they are queued; a later call, at the latest ``synchronize``,
    reports their errors. cuDLA makes every error but one final (CUDA for Tegra 5.4): the session is then FAILED, every
    further call raises ``DeviceLost``, and its process has to end. The exception is registering memory twice.

    Every method may be called from any thread; one session's calls are serialised. Every method may raise, beside what
    it names:

        DeviceLost: cuDLA or CUDA failed, now or earlier. Final.
        EngineFailed: the engine aborted a task, possibly of an earlier submission. Final.
        EngineHung: a call or a task did not end within its time limit. Final; the process cannot be saved.
        UsageError: the call is invalid (a closed session, a foreign module, a buffer too small). Changes nothing.

    Args:
        library: the way to cuDLA.
        device: the number of the DLA.
        timing: time limits and clock.
    """

    def __init__(self, library: CudlaBinding, device: int, timing: Timing) -> None:
        self._library = library
        self._device = device
        self._timing = timing
        self._thread = CallThread(f"DLA {device}", timing.patience)
        self._deadlines = Deadlines(timing.limits)
        self._state = DlaSessionState.IDLE
        self._turn = threading.RLock()
        self._moving = threading.Lock()
        self._handle = 0
        self._has_loaded = False
        self._diagnoses = False
        self._module: DlaModule | None = None
        self._registrations: dict[int, Registration] = {}
        self._in_flight: list[TaskMemory] = []
        self._streams: set[int] = set()
        self._failure = ""

    @property
    def device(self) -> int:
        """The number of the DLA."""
        return self._device

    @property
    def state(self) -> DlaSessionState:
        """Where the session stands."""
        return self._state

    def attributes(self) -> DeviceAttributes:
        """Return the device's attributes (``cudlaDeviceGetAttribute``)."""
        with self._turn:
            return self._ask("cudlaDeviceGetAttribute", lambda: self._library.attributes(self._handle))

    def load(self, loadable: bytes, options: LoadOption = LoadOption.NONE) -> DlaModule:
        """Load a loadable (``cudlaModuleLoadFromMemory``, ``cudlaModuleGetAttributes``).

        A handle takes one in its life, also after ``unload`` (cuDLA API reference).

        Args:
            loadable: what TensorRT built; ``b""`` with ``FAULT_DIAGNOSTICS``.
            options: how to load.

        Raises:
            Unsupported: not a loadable, or not for this DLA and its software. Final for this session.
            UsageError: the session has had a loadable.
        """
        with self._turn:
            self._refuse_unless(not self._has_loaded, "a handle takes one loadable in its life: open another session")
            diagnostics = bool(options & LoadOption.FAULT_DIAGNOSTICS)
            self._refuse_unless(diagnostics is not bool(loadable), "there is no loadable, or it is the library's own")
            self._has_loaded = True
            handle = self._ask("cudlaModuleLoadFromMemory", lambda: self._library.load(self._handle, loadable, options))
            self._diagnoses = diagnostics
            self._module = DlaModule(
                handle,
                self._described(handle, ModuleAttribute.INPUT_TENSOR_DESCRIPTORS),
                self._described(handle, ModuleAttribute.OUTPUT_TENSOR_DESCRIPTORS),
                self._described(handle, ModuleAttribute.OUTPUT_TASK_STATISTICS_DESCRIPTORS),
            )
            return self._module

    def unload(self, module: DlaModule) -> None:
        """Unload it; its tasks must be done (``cudlaModuleUnload``)."""
        with self._turn:
            self._refuse_unless(module is self._module, "the module is not loaded in this session")
            self._refuse_unless(self._state is not DlaSessionState.BUSY, "tasks may still run the module: synchronize")
            self._ask("cudlaModuleUnload", lambda: self._library.unload(module.handle))
            self._module = None

    def register(self, memory: int, size_bytes: int, access: Access = Access.READ_WRITE) -> Registration:
        """Make CUDA memory usable by the DLA (``cudlaMemRegister``). It stays the caller's, and must outlive this.

        Raises:
            UsageError: it is registered already; the earlier registration remains.
        """
        with self._turn:
            self._refuse_unless(memory != 0 and size_bytes > 0, f"no memory: {memory:#x}, {size_bytes} bytes")
            register = partial(self._library.register, self._handle, memory, size_bytes, access)
            dla_address = self._ask("registering memory", register)
            registration = self._registrations[dla_address] = Registration(memory, size_bytes, dla_address, access)
            return registration

    def unregister(self, registration: Registration) -> None:
        """Take memory from the DLA; its tasks must be done (``cudlaMemUnregister``)."""
        with self._turn:
            self._refuse_unless(self._holds(registration), "the memory is not registered in this session")
            self._refuse_unless(self._state is not DlaSessionState.BUSY, "tasks may still use the memory: synchronize")
            self._ask("cudlaMemUnregister", lambda: self._library.unregister(self._handle, registration.dla_address))
            del self._registrations[registration.dla_address]

    def submit(
        self, tasks: Sequence[DlaTask], *, stream: int | None = None, options: SubmitOption = SubmitOption.NONE
    ) -> None:
        """Queue tasks, to run one after the other (``cudlaSubmitTask``). Returns before they run.

        Args:
            tasks: at least one. Their memory must stay registered until they are done.
            stream: the CUDA stream whose earlier work they wait for, and whose later work waits for them; None is the
                session's own.
            options: how to submit.
        """
        with self._turn:
            self._refuse_unless(bool(tasks), "there is no task to submit")
            for task in tasks:
                self._check_task(task)
            diagnostics = bool(options & SubmitOption.DIAGNOSTICS)
            self._refuse_unless(
                diagnostics is self._diagnoses, "diagnostics run their own module, and nothing else does"
            )
            self._refuse_unless(stream != PER_THREAD_STREAM, "cuDLA does not support the per-thread default stream")
            where = self._own_stream() if stream is None else stream
            memory = TaskMemory(tasks)
            # cuDLA may wait in here for room in its queue: as long as what is queued may take.
            self._deadlines.submitted(self._timing.clock(), len(tasks))
            self._in_flight.append(memory)
            self._ask(
                "cudlaSubmitTask",
                lambda: self._library.submit(self._handle, memory, where, options),
                self._deadlines.patience_s(self._timing.clock()),
            )
            self._move(DlaEvent.SUBMIT)
            self._streams.add(where)

    def synchronize(self) -> None:
        """Wait until everything submitted is done, and ask for late errors (``cudlaGetLastError``).

        It waits for each task's time limit, one after the other, plus the grace; then the firmware counts as hung.
        """
        with self._turn:
            self._refuse_if_over()
            self._settle()
            self._move(DlaEvent.ENDED)

    def last_error(self) -> CudlaStatus:
        """Return the handle's latest asynchronous error, without raising or waiting (``cudlaGetLastError``)."""
        with self._turn:
            self._refuse_if_over()
            return self._ask("cudlaGetLastError", lambda: self._library.last_error(self._handle))

    def set_task_limit(self, seconds: float) -> None:
        """Limit how long one task may run from now on (``cudlaSetTaskTimeoutInMs``).

        Where cuDLA lacks that function, the watchdog gives up a task that exceeds the limit.
        """
        limits = replace(self._deadlines.limits, task_s=seconds)
        with self._turn:
            self._refuse_unless(seconds <= TASK_LIMIT_MAX_S, f"a task may take {TASK_LIMIT_MAX_S:.0f} s at most")
            self._ask("cudlaSetTaskTimeoutInMs", lambda: self._limit_tasks(limits))
            self._deadlines.limits = limits

    def close(self) -> None:
        """Wait for the tasks, unregister and unload everything, destroy the handle. Idempotent.

        A session that failed or hung is abandoned: destroying a handle under a task may crash, so the process must end.
        """
        with self._turn:
            if self._state in LIVE:
                self._drain_and_release()
            elif self._state is not DlaSessionState.CLOSED:
                self._move(DlaEvent.CLOSE)
            self._thread.close()

    def condemn(self, why: str) -> None:
        """Make the session FAILED because another one of the same process failed."""
        if self._state in LIVE:
            self._failure = self._failure or why
            self._move(DlaEvent.FAIL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Create the handle; the last thing a constructor does."""
        try:
            self._ask("starting CUDA", self._enter)
            self._handle = self._ask("cudlaCreateDevice", lambda: self._library.create_device(self._device))
            self._ask("cudlaSetTaskTimeoutInMs", lambda: self._limit_tasks(self._timing.limits))
        except CodecfleetError:
            self._thread.close()
            raise

    def _limit_tasks(self, limits: TimeLimits) -> None:
        # A cuDLA without this function (CUDA for Tegra lacks it) leaves the limit to the watchdog.
        with suppress(FunctionMissing):
            self._library.set_task_timeout(self._handle, limits.task_ms)

    def _settle(self) -> None:
        """Wait for every task, and raise a late error: with isolation on, CUDA does not report it."""
        self._wait_for_tasks()
        status = self._ask("cudlaGetLastError", lambda: self._library.last_error(self._handle))
        if status is not CudlaStatus.SUCCESS:
            self._fail(error_of("cudlaSubmitTask", status, self._device))
        self._deadlines.ended()
        self._in_flight.clear()

    def _drain_and_release(self) -> None:
        if self._state is DlaSessionState.BUSY:
            self._move(DlaEvent.CLOSE)
        try:
            if self._state is DlaSessionState.DRAINING:
                self._settle()
            self._ask("releasing the handle", self._release)
        except CodecfleetError:
            if self._state in LIVE:
                self._move(DlaEvent.FAIL)
            self._move(DlaEvent.CLOSE)
            raise
        self._move(DlaEvent.ENDED if self._state is DlaSessionState.DRAINING else DlaEvent.CLOSE)

    def _release(self) -> None:
        for registration in reversed(self._registrations.values()):
            self._library.unregister(self._handle, registration.dla_address)
        self._registrations.clear()
        if self._module is not None:
            self._library.unload(self._module.handle)
            self._module = None
        self._library.destroy_device(self._handle)
        self._leave()

    def _described(self, handle: int, attribute: ModuleAttribute) -> tuple[TensorDescriptor, ...]:
        return self._ask("cudlaModuleGetAttributes", lambda: self._library.descriptors(handle, attribute))

    def _check_task(self, task: DlaTask) -> None:
        module = task.module
        self._refuse_unless(module is self._module, "the task's module is not loaded in this session")
        self._check_tensors("input", module.inputs, task.inputs)
        self._check_tensors("output", module.outputs, task.outputs)
        if task.statistics:
            self._check_tensors("statistics buffer", module.statistics, task.statistics)

    def _check_tensors(self, kind: str, wanted: tuple[TensorDescriptor, ...], given: tuple[Registration, ...]) -> None:
        self._refuse_unless(
            len(wanted) == len(given), f"a task needs one {kind} for each of {len(wanted)}, and has {len(given)}"
        )
        for descriptor, registration in zip(wanted, given, strict=True):
            self._refuse_unless(self._holds(registration), f"the {kind} for {descriptor.name} is not registered here")
            self._refuse_unless(
                registration.size_bytes >= descriptor.size_bytes,
                f"the {kind} for {descriptor.name} needs {descriptor.size_bytes} bytes: {registration.size_bytes}",
            )

    def _holds(self, registration: Registration) -> bool:
        return self._registrations.get(registration.dla_address) is registration

    def _ask(self, what: str, call: Callable[[], ResultT], limit_s: float | None = None) -> ResultT:
        """Have the session's thread call the library, and map its errors."""
        self._refuse_if_over()
        try:
            return self._thread.call(what, call, limit_s or self._timing.limits.call_s)
        except CudlaFailure as failure:
            error = error_of(failure.call, failure.status, self._device)
            if is_final(failure.status):
                self._fail(error)
            raise error from None
        except EngineHung as error:
            self._give_up(DlaEvent.HANG, error)

    def _fail(self, error: CodecfleetError) -> NoReturn:
        self._give_up(DlaEvent.FAIL, error)

    def _give_up(self, happening: DlaEvent, error: CodecfleetError) -> NoReturn:
        self._failure = error.message
        self._move(happening)
        self._failed_finally(error)
        raise error

    def _move(self, happening: DlaEvent) -> None:
        with self._moving:  # another session may condemn this one at any time
            self._state = next_state(self._state, happening)

    def _refuse_if_over(self) -> None:
        if self._state is DlaSessionState.CLOSED:
            self._refuse_unless(sound=False, message="the session is closed")
        if self._state not in LIVE:
            message = f"DLA {self._device} failed before in this process ({self._failure})"
            raise DeviceLost(message, "Restart the process.")

    def _refuse_unless(self, sound: bool, message: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not sound:
            complaint = f"DLA {self._device}: {message}"
            raise UsageError(complaint, _SEE_DOCS)

    @abstractmethod
    def _enter(self) -> None:
        """Prepare the session's thread, in that thread."""

    @abstractmethod
    def _leave(self) -> None:
        """Release what ``_enter`` and the session's life took, in that thread, the handle being destroyed."""

    @abstractmethod
    def _own_stream(self) -> int:
        """Return the stream to submit to where a caller names none."""

    @abstractmethod
    def _wait_for_tasks(self) -> None:
        """Wait until every task is done, within the deadlines."""

    @abstractmethod
    def _failed_finally(self, error: CodecfleetError) -> None:
        """Report a final error to the other sessions of the process."""
