"""The work folder of a job that has no journal and therefore begins again: stills and inference."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ..board.threads import in_thread, shielded
from ..join.publish import work_folder
from ..join.spool import PUBLISHED, Spool, storage_error


class RecordedFolder:
    """A work folder, which may hold a record of an earlier run: the request whose output that run began to publish.

    So if a run is killed while it publishes, or later, the next run of the same request may replace the output.
    ``request`` is the request as text. Creating an instance reads the record.
    """

    def __init__(self, request: str, output: str) -> None:
        self._request = request
        self._spool = Spool(work_folder(output), output)
        self._path = self._spool.folder / PUBLISHED
        self.is_recorded = False  #: whether an earlier run of this request may have published the output
        with suppress(OSError, ValueError):
            self.is_recorded = self._path.read_text(encoding="utf-8") == request

    @asynccontextmanager
    async def opened(self, *, keeps_record: bool) -> AsyncIterator[Path]:
        """Own the folder during the block, and yield it. If the block ends well, ``keeps_record`` keeps the record.

        Raises the errors of ``Spool.open``.
        """
        spool = self._spool
        try:
            await shielded(lambda: spool.open(continues=self.is_recorded))
            yield spool.folder
        except BaseException:  # even a cancelled run must leave the record for the next run
            await asyncio.shield(in_thread(spool.keep if self.is_recorded else spool.remove))
            raise
        await asyncio.shield(in_thread(spool.keep if keeps_record else spool.remove))

    def record(self) -> None:
        """Record, just before publishing, that the output is now this request's. Raises StorageFailed."""
        try:
            self._path.write_text(self._request, encoding="utf-8")
        except OSError as error:
            raise storage_error(error, self._path) from error
