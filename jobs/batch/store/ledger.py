"""Writes what happens to entries into the database: in one transaction all that came up during the last one."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Protocol

from ....actors.task_owner import consume_exception
from ...board.threads import in_thread
from .schema import Change


class Writes(Protocol):
    """What changes are written to."""

    def write(self, changes: Iterable[Change]) -> None:
        """Write them all, or none; blocks."""
        ...


class BatchLedger:
    """Takes a batch's changes to the database, in a thread of its own; used from one event loop."""

    def __init__(self, database: Writes) -> None:
        self._database = database
        self._pending: SimpleQueue[tuple[Change, Future[None]]] = SimpleQueue()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="codecfleet-ledger")

    async def write(self, change: Change) -> None:
        """Return when the change is on disk; one that was given is written even if its giver is cancelled.

        Raises:
            OutputInUse, StorageFailed: as ``BatchDatabase.write``.
        """
        written: Future[None] = Future()
        self._pending.put((change, written))
        self._writer.submit(self._write_pending)
        told = asyncio.wrap_future(written)
        told.add_done_callback(consume_exception)
        await asyncio.shield(told)

    async def close(self) -> None:
        """Wait until everything is written."""
        await asyncio.shield(in_thread(self._writer.shutdown))

    def _write_pending(self) -> None:
        """Write all that came up since the last time, and tell who waits for it."""
        together = list(self._taken())
        if not together:
            return
        try:
            self._database.write([change for change, _ in together])
        except Exception as error:  # noqa: BLE001 - handed to who waits
            for _, written in together:
                written.set_exception(error)
        else:
            for _, written in together:
                written.set_result(None)

    def _taken(self) -> Iterable[tuple[Change, Future[None]]]:
        while True:
            try:
                yield self._pending.get_nowait()
            except Empty:
                return
