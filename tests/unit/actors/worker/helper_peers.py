"""A worker's helper in a thread of this process, and a helper whose other end is played by the test."""

import asyncio
import queue
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.device.worker import WorkerCore
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.process.plain import PlainEnd
from codecfleet.actors.process.process import StartedProcess
from codecfleet.actors.worker.helper import Helper, HelperReport
from codecfleet.actors.worker.helper_host import serve_worker
from codecfleet.actors.worker.packed_work import BlobCache
from codecfleet.errors import EngineUnfit

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsendable(Work[object]):
    """Returns a value that cannot be pickled."""

    def run(self, context: WorkContext) -> object:
        """Return it."""
        del context
        return threading.Lock()


def packed(work: Work[Any]) -> bytes:
    """Return work packed as a client packs it."""
    return BlobCache(bytes).pack(work)[0]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, which another thread changes without an event."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)


class _OpenGpu(Gpu):
    """A GPU that is open and idle."""

    def opened(self) -> Any:
        """Return a value that nobody uses."""


class Threaded:
    """A helper in a thread, which reports when ``ticks`` are released. Create it in an event loop."""

    def __init__(self, gpu: Gpu | None = None) -> None:
        self._gpu = gpu or _OpenGpu()
        self.ticks = threading.Semaphore(0)
        self.ended: list[str] = []
        self.helper = Helper(self._spawn, 4, self.ended.append)

    def _spawn(self, slots: int) -> StartedProcess:
        ours, theirs = socket.socketpair()
        core = WorkerCore(slots, self._gpu)

        async def pause(_: float) -> None:
            while not self.ticks.acquire(blocking=False):  # noqa: ASYNC110 - another thread releases the ticks
                await asyncio.sleep(0.005)

        def run() -> None:
            with theirs, suppress(EngineUnfit):
                asyncio.run(serve_worker(theirs, core, self._gpu.use, self._gpu.opened, pause))

        threading.Thread(target=run, daemon=True).start()
        return StartedProcess(ours, lambda: None, lambda: "it ended")

    async def ready(self) -> Helper:
        """Wait until the helper takes work; return the helper."""
        await self.helper.is_up.wait()
        assert self.helper.is_ready
        return self.helper

    async def outcome(self, work: Work[Any], run: str = "run") -> Any:
        """Run work in the helper, and return its outcome."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.helper.run(run, packed(work), ())


class Peer:
    """The other end of a helper's channel. Create it in an event loop."""

    def __init__(self) -> None:
        self._ours, self._end = socket.socketpair()
        self.theirs = PlainEnd(self._end)
        weakref.finalize(self, self._end.close)
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.kills = 0
        self.helper = Helper(self._spawn, 4, self.ended.put)

    async def ready(self) -> Helper:
        """Report that the helper is ready, and return the helper."""
        self.theirs.send(HelperReport(None))
        await self.helper.is_up.wait()
        return self.helper

    def close(self) -> None:
        """End it."""
        self._end.close()

    def _spawn(self, _: int) -> StartedProcess:
        return StartedProcess(self._ours, self._kill, lambda: "it was killed by SIGKILL")

    def _kill(self) -> None:
        self.kills += 1
        with suppress(OSError):  # it was closed before
            self._end.shutdown(socket.SHUT_RDWR)
