"""A second process on threads of this one, what it is given to do, and what stands at its other end."""

import asyncio
import queue
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.device.worker import WorkerCore
from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu
from codecfleet.cluster.process.plain import PlainEnd
from codecfleet.cluster.process.process import StartedProcess
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.helper_program import serve
from codecfleet.cluster.worker.helpers.helper import HelperProcess
from codecfleet.cluster.worker.helpers.messages import HelperTells
from codecfleet.errors import DeviceLost, EngineUnfit

GATES: dict[str, threading.Event] = {}


PATIENCE_S = 20.0


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


def _no_gpu() -> OpenedGpu:
    message = "there is no GPU"
    raise EngineUnfit(message, "Buy one.")


class _OpenGpu(Gpu):
    """A GPU that is open, and that is not in use."""

    def opened(self) -> Any:
        """Return nothing that anybody needs."""


@dataclass
class Second:
    """A second process in a thread."""

    gpu: Gpu = field(default_factory=_OpenGpu)
    ticks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    spawned: int = 0

    def __post_init__(self) -> None:
        self.process = HelperProcess(4, self.lost.append, self.refused.append, self._spawn)

    def _spawn(self, slots: int) -> StartedProcess:
        self.spawned += 1
        ours, theirs = socket.socketpair()
        core = WorkerCore(slots, self.gpu)

        async def pause(_: float) -> None:
            while not self.ticks.acquire(blocking=False):  # noqa: ASYNC110 - a thread releases it
                await asyncio.sleep(0.005)

        def run() -> None:
            asyncio.run(serve(theirs, core, self.gpu.use, self.gpu.opened, pause))
            theirs.close()

        threading.Thread(target=run, daemon=True).start()
        return StartedProcess(ours, lambda: None, lambda: "it ended")

    def ready(self) -> HelperProcess:
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
        self.ours, self._end = socket.socketpair()
        self.theirs = PlainEnd(self._end)
        weakref.finalize(self, self._end.close)
        if spawn_error is not None:
            self.ours.close()
        self.told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.kills = 0
        self._spawn_error = spawn_error
        self.process = HelperProcess(
            4, lambda why: self.told.put(("lost", why)), lambda why: self.told.put(("refused", why)), self._spawn
        )

    def ready(self) -> HelperProcess:
        """Start it, and have it be ready."""
        self.process.start()
        self.theirs.send(HelperTells(None))
        _until(lambda: self.process.is_ready)
        return self.process

    def close(self) -> None:
        """End it."""
        self._end.close()

    def _spawn(self, _: int) -> StartedProcess:
        if self._spawn_error is not None:
            raise self._spawn_error
        return StartedProcess(self.ours, self._kill, lambda: "it was killed by SIGKILL")

    def _kill(self) -> None:
        self.kills += 1
        with suppress(OSError):  # it was closed before
            self._end.shutdown(socket.SHUT_RDWR)
