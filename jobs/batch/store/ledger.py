"""Writes changes of entries into the database; those that come during a transaction share the next transaction."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from ....actors.task_owner import consume_exception
from ...board.threads import in_thread
from .schema import Change


class BatchLedger:
    """Passes a batch's changes to ``write``, in a thread. Use it in only one event loop."""

    def __init__(self, write: Callable[[list[Change]], object]) -> None:
        self._write = write
        self._pending: SimpleQueue[tuple[Change, Future[None]]] = SimpleQueue()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="codecfleet-ledger")

    async def write(self, change: Change) -> None:
        """Write a change, and return once the change is on the disk. A change is written even if the call is cancelled.

        Raises the errors of ``BatchDatabase.write``.
        """
        written: Future[None] = Future()
        self._pending.put((change, written))
        self._writer.submit(self._write_pending)
        waiting = asyncio.wrap_future(written)
        waiting.add_done_callback(consume_exception)
        await asyncio.shield(waiting)

    async def close(self) -> None:
        """Wait until everything is written."""
        await asyncio.shield(in_thread(self._writer.shutdown))

    def _write_pending(self) -> None:
        together = [self._pending.get_nowait() for _ in range(self._pending.qsize())]  # no other thread takes items
        if not together:
            return
        try:
            self._write([change for change, _ in together])
        except Exception as error:  # noqa: BLE001 - raised where each change is awaited
            for _, written in together:
                written.set_exception(error)
        else:
            for _, written in together:
                written.set_result(None)
