"""For jobs without a journal (stills and inference): records in the work folder what a run is about to publish.

If the run is killed after that, or nobody hears of its end, the next run of the same request may replace the output.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from ...actors.media.whole_file import write_whole
from ..board.threads import in_thread, shielded
from ..join.plain_files import content_of
from ..join.proof import file_sha256, has_content
from ..join.publish import work_folder
from ..join.spool import PUBLISHED, Spool, storage_error
from ..request.parts import Part
from .header import request_text

_MOST_BYTES: Final = 1 << 20  #: The largest size of a record


class RecordedWork:
    """The work folder of a request, with its record.

    ``mark`` is the file that shows whether the output is the recorded one: the output itself, or the index in it.
    """

    def __init__(self, spec: Part, output: str, mark: str) -> None:
        self._request = request_text(spec)
        self._mark = mark
        self._spool = Spool(work_folder(output), output)
        self._record = self._spool.folder / PUBLISHED

    def may_replace(self) -> bool:
        """Return whether the output is the one that an earlier run of this request recorded. Blocks."""
        return self._published_by() == self._request

    def _published_by(self) -> str | None:
        """Return the request whose run recorded the present output; None if there is no such record."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            stated = json.loads(content_of(self._record, _MOST_BYTES) or b"")
            if has_content(self._mark, stated["mark_bytes"], stated["mark_sha256"]):
                return str(stated["request"])
        return None

    @asynccontextmanager
    async def opened(self, *, keeps_record: bool) -> AsyncIterator[Path]:
        """Own the folder during the block, and yield it. If the block ends well, ``keeps_record`` keeps the record.

        Raises the errors of ``Spool.open``.
        """
        spool, was_published = self._spool, await in_thread(self._published_by) is not None
        try:
            await shielded(lambda: spool.open(continues=was_published))
            yield spool.folder
        except BaseException:  # even a cancelled run must leave the record of an earlier run, of any request
            await asyncio.shield(in_thread(spool.keep if was_published else spool.remove))
            raise
        await asyncio.shield(in_thread(spool.keep if keeps_record else spool.remove))

    def record(self, finished: Path) -> None:
        """Record what is published next; ``finished`` becomes the mark. Blocks. Raises StorageFailed."""
        try:
            mark = {"mark_bytes": finished.stat().st_size, "mark_sha256": file_sha256(finished)}
            write_whole(self._record, json.dumps({"request": self._request, **mark}).encode())
        except OSError as error:
            raise storage_error(error, self._record) from error
