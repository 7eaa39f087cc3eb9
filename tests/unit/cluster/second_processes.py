"""A second process on threads of this one, what it is given to do, and what stands at its other end."""

import pickle
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import pytest

from codecfleet.actors.device.interface import SessionCounts
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.device.worker import WorkerCore
from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.second_process import (
    Ready,
    SecondProcess,
    SpawnedChild,
)
from codecfleet.cluster.worker.second_program import serve
from codecfleet.errors import DeviceLost, EngineUnfit

GATES: dict[str, threading.Event] = {}


PATIENCE_S = 20.0


SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Work[int]):
    """Counts to a number."""

    upto: int

    def run(self, context: WorkContext) -> int:
        """Count."""
        for _ in range(self.upto):
            context.advance()
        return self.upto


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Work[str]):
    """Says that it runs, and goes on until it is let go or cancelled."""

    def run(self, context: WorkContext) -> str:
        """Wait."""
        GATES[f"{self.label} runs"].set()
        while not GATES[self.label].wait(0.005):
            context.advance(0)
        context.advance()
        return self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(Work[None]):
    """Loses its device."""

    def run(self, context: WorkContext) -> None:
        """Fail.

        Raises:
            DeviceLost: always.
        """
        del context
        message = "the GPU fell off the bus"
        raise DeviceLost(message, "Look at it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsendable(Work[object]):
    """Returns what does not pickle."""

    def run(self, context: WorkContext) -> object:
        """Return it."""
        del context
        return threading.Lock()


class _Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("no number",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnUnreadable(Work[object]):
    """Returns what pickles and cannot be made again."""

    def run(self, context: WorkContext) -> object:
        """Return it."""
        del context
        return _Unreadable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMuch(Work[bytes]):
    """Returns more than there is memory for on the way."""

    def run(self, context: WorkContext) -> bytes:
        """Return it."""
        del context
        return bytes(2 * SMALL_BYTES)


def _no_gpu() -> OpenedGpu:
    message = "there is no GPU"
    raise EngineUnfit(message, "Buy one.")


class _OpenGpu(Gpu):
    """A GPU that is open, and that is not in use."""

    def opened(self) -> Any:
        """Return nothing that anybody needs."""


class _SlowToTell(_OpenGpu):
    """One that the report's thread is kept waiting by while it looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = threading.Event()
        self.goes_on = threading.Event()

    def use(self) -> SessionCounts:
        """Release it."""
        if threading.current_thread().name == "codecfleet-report":
            self.looks.set()
            self.goes_on.wait(PATIENCE_S)
        return super().use()


class _Cramped:
    """A connection through which no large message goes: there is no memory for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.recv, self.close = connection.recv, connection.close

    def send(self, message: Any) -> None:
        """Send what is small."""
        if len(pickle.dumps(message)) > SMALL_BYTES:
            raise MemoryError
        self._connection.send(message)


@dataclass
class Second:
    """A second process in a thread."""

    gpu: Gpu = field(default_factory=_OpenGpu)
    ticks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    spawned: int = 0

    def __post_init__(self) -> None:
        self.process = SecondProcess(4, self.lost.append, self.refused.append, self._spawn)

    def _spawn(self, slots: int) -> SpawnedChild:
        self.spawned += 1
        ours, theirs = Pipe()
        core = WorkerCore(slots, self.gpu)

        def pause(_: float) -> None:
            self.ticks.acquire()

        def run() -> None:
            serve(cast("Connection", _Cramped(theirs)), core, self.gpu.use, pause, self.gpu.opened)
            theirs.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return SpawnedChild(ours, lambda: None, lambda: thread.join() or 0)

    def ready(self) -> SecondProcess:
        """Start it, and return it when it takes work."""
        self.process.start()
        _until(lambda: self.process.is_ready)
        return self.process

    def outcome(self, work: Work[Any], run: str = "run") -> Any:
        """Run work there and return its outcome."""
        return self.process.submit(run, BlobCache(bytes).pack(work)[0], ()).result(PATIENCE_S)


def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / 0.005)):
        if is_so():
            return
        threading.Event().wait(0.005)
    pytest.fail("it never came to be")


@pytest.fixture
def second() -> Second:
    """A second process that was not started yet."""
    GATES.clear()
    for label in ("a", "b"):
        GATES[label], GATES[f"{label} runs"] = threading.Event(), threading.Event()
    return Second()


class _Peer:
    """The other end of what a second process is talked to by, in the test's own hands."""

    def __init__(self, spawn_error: Exception | None = None) -> None:
        self.ours, self.theirs = Pipe()
        self.told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.kills = 0
        self._spawn_error = spawn_error
        self.process = SecondProcess(
            4, lambda why: self.told.put(("lost", why)), lambda why: self.told.put(("refused", why)), self._spawn
        )

    def ready(self) -> SecondProcess:
        """Start it, and have it be ready."""
        self.process.start()
        self.theirs.send(Ready())
        _until(lambda: self.process.is_ready)
        return self.process

    def _spawn(self, _: int) -> SpawnedChild:
        if self._spawn_error is not None:
            raise self._spawn_error
        return SpawnedChild(self.ours, self._kill, lambda: -9)

    def _kill(self) -> None:
        self.kills += 1
        with suppress(OSError):  # two threads may close it at the same time
            self.theirs.close()
