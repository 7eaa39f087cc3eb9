"""A simulated worker process: the real worker's code in threads of this process, called the way Ray's actors are."""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from typing import Any

from ...actors.device.interface import SessionCounts
from ...actors.device.worker import WorkerCore
from ...cluster.process.actor_calls import ActorMethod
from ...cluster.worker.ray_worker import RayWorker
from ...cluster.worker.second_process import SpawnedChild
from ...cluster.worker.second_program import serve


class FakeWorker:
    """Stands for Ray's handle of a ``RayWorker``: ``await worker.run.remote(...)``.

    After ``kill`` every call, also one under way, raises what Ray raises for a dead actor.
    """

    def __init__(self, slots: int) -> None:
        self._worker = RayWorker(slots, spawn_lone=in_thread)
        self._dead = asyncio.Event()

    def __getattr__(self, name: str) -> ActorMethod:
        return ActorMethod(partial(self._run, getattr(self._worker, name)))

    def kill(self) -> None:
        """Die."""
        self._dead.set()

    async def _run(self, method: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        call = asyncio.ensure_future(method(*arguments))
        death = asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait({call, death}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                from ray.exceptions import RayActorError  # noqa: PLC0415 - who tests without Ray need not have it

                raise RayActorError
            return call.result()
        finally:
            call.cancel()
            death.cancel()


def in_thread(slots: int) -> SpawnedChild:
    """Start a thread in the place of a process in which work runs alone."""
    ours, theirs = Pipe()

    def run() -> None:
        core = WorkerCore(slots)
        with theirs:
            serve(theirs, core, SessionCounts, threading.Event().wait)
        core.close()

    def kill() -> None:
        # Not closed: another thread waits for its messages.
        with suppress(OSError), socket.socket(fileno=os.dup(ours.fileno())) as shut:
            shut.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=run, name="codecfleet-lone", daemon=True).start()
    return SpawnedChild(ours, kill, lambda: None)
