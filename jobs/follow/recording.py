"""Watches a growing file, and reads it in threads that wait for it to grow."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from ...actors.media.location import EndedSource, HeldSource
from ...errors import InputNotFound, InputUnreadable
from ..board.threads import in_thread
from ..source.source import SourceReading, read_growing
from .growing import ELSEWHERE, FileState, GrowingEnd, GrowingFile, Growth, refuse_late_index

_LOOK_S: Final = 0.25
_MOST_READERS: Final = 16
ResultT = TypeVar("ResultT")


class LiveRecording:
    """A file that grows. Create it in an event loop, run ``watch`` as a task, and ``close`` it at the end.

    Args:
        path: the file.
        track: the video track to index.
        quiet_s: the file has ended when it has not grown for this long.
        now_s: the clock.
        ended_bytes: the file's size when an earlier run found it ended; None if none did.
    """

    def __init__(
        self, path: Path, track: int, quiet_s: Fraction, now_s: Callable[[], float], ended_bytes: int | None = None
    ) -> None:
        self.path = path
        self._track = track
        self._quiet_s = float(quiet_s)
        self._now_s = now_s
        self.growth = Growth(FileState.of(path), now_s(), is_over=ended_bytes is not None)
        self._end = GrowingEnd(
            self.growth.state.size_bytes if ended_bytes is None else ended_bytes, is_final=ended_bytes is not None
        )
        self._threads = ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="follow")
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Event()
        self._found: asyncio.Queue[SourceReading | None] = asyncio.Queue()  # None once ``_last`` is done
        self._last = self.read(self._index)
        self._last.add_done_callback(lambda _: self._found.put_nowait(None))

    @property
    def ended_bytes(self) -> int | None:
        """The file's size when it ended; None while it may grow."""
        return self._end.seen_bytes if self._end.is_final else None

    def read(self, call: Callable[[GrowingFile, HeldSource], ResultT]) -> "asyncio.Future[ResultT]":
        """Run a call in a thread that may wait for the file to grow."""
        file = GrowingFile(self.path, self._end)
        held = cast("HeldSource", HeldSource.of(file, file.name))
        return self._loop.run_in_executor(self._threads, self._closing, file, held, call)

    def close(self) -> None:
        """Stop all readers, and wait for them."""
        self._end.is_stopped = True
        self._threads.shutdown(wait=True)

    async def watch(self) -> None:
        """Look at the file until cancelled. Raises InputUnreadable: it was removed, replaced or made shorter."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look at the file once."""
        try:
            state = await in_thread(FileState.of, self.path)
        except InputNotFound as error:
            raise InputUnreadable(f"{self.path} was removed while it was followed", ELSEWHERE) from error
        self.growth = self.growth.seen(self.path, state, self._now_s(), self._quiet_s)
        if not self._end.is_final:
            self._end.seen_bytes = self.growth.state.size_bytes
            self._end.is_final = self.growth.is_over

    async def next(self) -> tuple[SourceReading, bool]:
        """Wait for the next keyframe or the end; return what was read before it, and whether the file has ended."""
        self._wanted.set()
        found = await self._found.get()
        if found is not None:
            return found, False
        self._found.put_nowait(None)  # for the next call
        return await self._last, True

    def _index(self, file: GrowingFile, held: HeldSource) -> SourceReading:
        refuse_late_index(file)
        file.seek(0)
        found = read_growing(str(self.path), held, self._track, self._wanted.is_set, self._give)
        ended = EndedSource.of(self.path, self._end.seen_bytes)
        return replace(found, index=replace(found.index, source=ended))

    def _give(self, reading: SourceReading) -> None:
        self._wanted.clear()
        self._loop.call_soon_threadsafe(self._found.put_nowait, reading)

    @staticmethod
    def _closing(file: GrowingFile, held: HeldSource, call: Callable[[GrowingFile, HeldSource], Any]) -> Any:  # noqa: ANN401 - passed on
        try:
            return call(file, held)
        finally:
            file.close()
