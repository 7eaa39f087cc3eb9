"""The fleet's side of one host."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ...actors.device.work import Work
from ..process.child import Child
from ..process.messages import Request, beside
from ..process.process import StartedProcess
from ..worker.blobs import BlobCache
from ..worker.packed_work import base_fields
from .messages import BEAT_S, CLOSING_S, Beat, Close, FleetSide, HostedWork, HostSide, KeepBlob, WorkDone

ReplyT = TypeVar("ReplyT")

SILENT_BEATS: Final = round(30 / BEAT_S)
"""After how many beats without a word a host is killed: importing Ray alone takes seconds on a busy machine. They are
counted, not timed: a program that was stopped, or slept with its machine, has heard nothing meanwhile."""


class HostLink(FleetSide):
    """One host, over its whole life; ``hear`` is called with each of its beats. Used from one event loop."""

    def __init__(self, process: StartedProcess, hear: Callable[[Beat], None]) -> None:
        self.over = asyncio.Event()
        """To be set by its user once the host's end is known."""
        self._host: Child[HostSide] = Child(process, self)
        self._hear = hear
        self._blobs = BlobCache(self._send_blob)
        self._blob_numbers = itertools.count()
        self._silent_beats = 0

    async def call(self, request: Request[HostSide, ReplyT]) -> ReplyT:
        """Have the host do something.

        Raises:
            ChildDied: the host is gone.
            CodecfleetError: the request's own.
        """
        return await self._host.call(request)

    def tell(self, request: Request[HostSide, None]) -> None:
        """Have the host do something, without waiting."""
        self._host.tell(request)

    async def run(self, number: int, work: Work[Any]) -> WorkDone:
        """Run work, as ``Pool.submit`` does.

        Raises:
            ChildDied: the host is gone.
            UsageError: the work does not pickle.
            CodecfleetError: the work's own.
        """
        packed, blobs = self._blobs.pack(work)
        return await self._host.call(HostedWork(number, base_fields(work), packed, blobs))

    async def heard(self, beat: Beat) -> None:
        self._silent_beats = 0
        self._hear(beat)

    async def death(self) -> str:
        """Wait for the host's end, and kill it if it says nothing for too long; return how it ended."""
        while True:
            try:
                async with asyncio.timeout(BEAT_S):
                    return await self._host.death()
            except TimeoutError:
                self._silent_beats += 1
            if self._silent_beats == SILENT_BEATS:
                self._host.kill(f"it said nothing for {SILENT_BEATS * BEAT_S:g} s")

    async def close(self, *, at_once: bool) -> None:
        """End the host: in good order, which takes half a second, or ``at_once``. What it was asked is lost."""
        if not at_once:
            self._host.tell(Close())
            try:
                async with asyncio.timeout(CLOSING_S):
                    await self._host.death()
            except TimeoutError:
                pass  # a cluster may be out of reach
        await self._host.end()

    def kill(self) -> None:
        """Kill the host."""
        self._host.kill()

    def _send_blob(self, content: bytes) -> int:
        self._host.tell(KeepBlob(beside(content)))
        return next(self._blob_numbers)
