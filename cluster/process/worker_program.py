"""The program of a worker that is a process of ours: the worker of ``worker/ray_worker.py``, without Ray.

It waits for its settings first, so that it may be started before they are known.
"""

import asyncio
import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..sandbox.confine import harden
from ..worker.ray_worker import RayWorker
from .calls import outcome_of, send_answer
from .program import begin, run_to_the_end
from .wire import MessageKind, WireChannel, WireMessage

_USUAL_WORK: Final = "codecfleet.actors.segment.encoding"
"""What most work is."""
_NICENESS: Final = 15
"""As Ray's workers: what hands out their work, and what the user does, comes first."""
_KILLED_FIRST: Final = "1000"
"""The kernel's OOM killer takes a worker before the process that can replace it; as Ray's workers."""


class WorkerServer:
    """Serves a worker to the one process at the other end of a channel; the first call is for ``make``."""

    def __init__(self, channel: WireChannel, make: Callable[..., RayWorker] = RayWorker) -> None:
        self._channel = channel
        self._make = make
        self._worker: RayWorker | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until the other process is gone."""
        writing = asyncio.create_task(self._channel.write())
        while (message := await self._channel.read()) is not None:
            self._take(message)
        writing.cancel()

    def _take(self, message: WireMessage) -> None:
        number = message.number
        if message.kind is MessageKind.CANCEL and number in self._tasks:
            self._tasks[number].cancel()
        elif message.kind is MessageKind.ASK:
            method, arguments = pickle.loads(message.parts[0])  # noqa: S301 - from the process that started us
            task = self._tasks[number] = asyncio.create_task(self._answer(number, method, arguments))
            task.add_done_callback(lambda _: self._tasks.pop(number))

    async def _answer(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        call = self._begin if self._worker is None else getattr(self._worker, method)
        send_answer(self._channel, number, await outcome_of(partial(call, *arguments), "the worker"))

    async def _begin(self, slots: int, cores: int) -> None:
        self._worker = self._make(slots, cores=cores)


def main() -> None:
    """Serve the process that started this one."""
    end, _ = begin()
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's process handles it
    import_module(_USUAL_WORK)  # the job is being planned meanwhile
    os.nice(_NICENESS)
    with suppress(OSError):  # without /proc none is preferred
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")
    run_to_the_end(WorkerServer(WireChannel(end)).run())
