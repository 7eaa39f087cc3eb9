"""Writes what happens to entries into the database: in one transaction all that came up during the last one."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from ...board.threads import consume_exception, shielded
from .schema import Change


class Writes(Protocol):
    """What changes are written to."""

    def write(self, changes: Iterable[Change]) -> None:
        """Write them all, or none; blocks."""
        ...


class BatchLedger:
    """Takes a batch's changes to the database; used from one event loop."""

    def __init__(self, database: Writes) -> None:
        self._database = database
        self._pending: list[tuple[Change, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, change: Change) -> None:
        """Return when the change is on disk; one that was given is written even if its giver is cancelled.

        Raises:
            OutputInUse, StorageFailed: as ``BatchDatabase.write``.
        """
        written = asyncio.get_running_loop().create_future()
        written.add_done_callback(consume_exception)
        self._pending.append((change, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._drain())
        await asyncio.shield(written)

    async def flushed(self) -> None:
        """Wait until everything is written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _drain(self) -> None:
        while self._pending:
            together, self._pending = self._pending, []
            try:
                await shielded(self._database.write, [change for change, _ in together])
            except Exception as error:  # noqa: BLE001 - handed to who waits
                _settle(together, error)
            else:
                _settle(together, None)
        self._writing = None


def _settle(together: list[tuple[Change, asyncio.Future[None]]], error: Exception | None) -> None:
    for _, written in together:
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)
