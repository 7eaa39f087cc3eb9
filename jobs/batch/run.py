"""The running of a batch: list, compare what earlier runs did, keep files in flight, note how they end."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ...actors.media.location import is_local, local_path
from ...actors.task_owner import TaskOwner
from ...cluster.autoscale.behind import LaterDemand
from ...cluster.fleet.pool import Pool
from ...errors import WorkError
from ..board.threads import in_thread, shielded
from ..request.spec import BatchSpec
from .file_run import FileRun, Submit, Surroundings
from .files import compare
from .listed.intake import DATABASE_NAME, Intake
from .listed.places import list_inputs
from .listed.specs import EntrySpecs
from .pacing import Behind, behind, wants_file
from .results import BatchProgress, BatchResult, earlier_failure
from .small_files import SmallFiles
from .store.database import BatchDatabase
from .store.ledger import BatchLedger
from .store.schema import BatchEntry
from .store.states import EntryEvent, EntryState, batch_ender
from .tally import Tally

_COMPARED_AT_ONCE: Final = 500
COMPARED_IN_THREADS: Final = 16
"""A store answers in tens of milliseconds."""
_FETCHED_AHEAD: Final = 32
_RESULTS_HELD: Final = 1000
"""Results that are not taken yet; then the next files wait."""


def database_path(batch: BatchSpec) -> Path:
    """Return where a batch's database lies: as asked, else beside the outputs, or in the current folder."""
    if batch.database is not None:
        return Path(batch.database).absolute()
    return (local_path(batch.output) if is_local(batch.output) else Path()).absolute() / DATABASE_NAME


class BatchRun:
    """The running of one batch. Used once.

    Args:
        batch: what is asked for, with absolute paths.
        submit: submits a job to the fleet.
        pool: where the jobs run.
    """

    def __init__(self, batch: BatchSpec, submit: Submit, pool: Pool) -> None:
        self._batch = batch
        self._pool = pool
        self._specs = EntrySpecs(batch)
        self._database = BatchDatabase(database_path(batch), batch.output)
        self._intake = Intake(batch, self._specs, self._database.path)
        self._ledger = BatchLedger(self._database)
        self._tally = Tally()
        self._small = SmallFiles(batch, pool, lambda: self._tally.waiting)
        self._around = Surroundings(
            batch=batch,
            specs=self._specs,
            ledger=self._ledger,
            submit=submit,
            small=self._small,
            on_change=self._wake,
        )
        self._ahead: deque[BatchEntry] = deque()
        self._files: dict[int, FileRun] = {}
        self._owner = TaskOwner()
        self._changed = asyncio.Event()
        self._faults_in_a_row = 0
        self._results: asyncio.Queue[BatchResult | None] = asyncio.Queue(_RESULTS_HELD)
        self._name = f"batch-{secrets.token_hex(4)}"
        self._behind = Behind()
        self._began_s = time.monotonic()

    async def run(self) -> None:
        """Do all that is to be done.

        Raises:
            UsageError: an input or a list makes no sense; nothing was begun.
            InputNotFound: there is nothing at an input.
            OutputInUse: another process does the same batch.
            WorkError: no file can be done any more; what is not done waits for another run.
            asyncio.CancelledError: it was cancelled; the same.
        """
        try:
            await shielded(self._open)
            await self._drive()
        finally:
            try:
                await asyncio.shield(in_thread(self._close))
            finally:
                self._end_results()  # else a caller that iterates would wait for ever

    async def results(self) -> AsyncIterator[BatchResult]:
        """Yield how each file ended, as it does, and what earlier runs failed at; ends with the batch."""
        while (result := await self._results.get()) is not None:
            yield result

    def progress(self) -> BatchProgress:
        """Return where the batch stands."""
        elapsed_s = time.monotonic() - self._began_s
        found = self._tally.progress(list(self._files.values()), elapsed_s=elapsed_s, left_out=self._intake.left_out)
        return replace(found, warm_fleet=self._pool.state.warm_fleet)

    def _open(self) -> None:
        self._database.open()
        listed = self._intake.entries(list_inputs(self._batch.inputs))
        self._database.take_list(listed, retry_failed=self._batch.retry_failed)
        self._tally.begin(self._database)

    def _close(self) -> None:
        if self._database.run:
            try:
                self._tally.end(self._database)
            finally:
                self._database.close()

    async def _drive(self) -> None:
        try:
            async with self._owner:
                self._owner.start(self._small.run(), "small files")
                comparing = self._owner.start(self._compare_all(), "comparison")
                comparing.add_done_callback(self._wake)
                while self._files or not comparing.done() or self._tally.waiting:
                    self._changed.clear()
                    await self._start_files()
                    self._say_behind()
                    await self._changed.wait()
        finally:
            self._pool.set_demand(self._name, None)
            await self._ledger.close()

    async def _start_files(self) -> None:
        while self._tally.waiting and wants_file(
            (file.segments_left for file in self._files.values()),
            slots=max(1, self._pool.state.slots),  # none before the first job has started the pool
            most=self._batch.files_at_once,
        ):
            if not self._ahead:
                # One that ends while the database is read may be found there as it was before.
                busy = frozenset(self._files)
                most = len(busy) + _FETCHED_AHEAD
                found = await in_thread(self._database.entries, EntryState.WAITING, most)
                self._ahead.extend(each for each in found if each.entry not in busy)
            if not self._ahead:
                return
            self._start(self._ahead.popleft())

    def _say_behind(self) -> None:
        """Tell the pool what waits behind the files in flight, where that has changed."""
        most = self._batch.files_at_once
        now = behind(self._tally.waiting, self._around.planned, in_flight=len(self._files), most=most)
        if now != self._behind:
            self._behind = now
            like = next((file.job for file in reversed(self._files.values()) if file.job), "")
            later = LaterDemand(like, now.segments, now.frames) if now.frames else None
            self._pool.set_demand(self._name, later)

    def _start(self, entry: BatchEntry) -> None:
        file = FileRun(entry, self._around)
        self._tally.started()
        self._files[entry.entry] = file
        self._owner.start(self._follow(file), f"file {entry.entry}")

    async def _follow(self, file: FileRun) -> None:
        """See a file through to its end; what is raised ends the whole batch."""
        result = None
        try:
            result, error = await file.run()
            self._faults_in_a_row = self._faults_in_a_row + 1 if isinstance(error, WorkError) else 0
            if result is not None:
                await self._results.put(result)
            if error is not None and (ender := batch_ender(error, self._faults_in_a_row)) is not None:
                raise ender
        finally:
            del self._files[file.entry.entry]
            self._tally.ended(file.entry, result)
            self._wake()

    async def _compare_all(self) -> None:
        """Compare what earlier runs ended with what is there now, beside the files that are done meanwhile."""
        for state in (EntryState.DONE_BEFORE, EntryState.FAILED_BEFORE):
            while entries := await in_thread(self._database.entries, state, _COMPARED_AT_ONCE):
                found = await in_thread(self._compare, entries, state)
                await shielded(self._database.checked, state, [(entry.entry, what) for entry, what in found])
                for entry, what in found:
                    self._tally.compared(entry, state, what)
                    if (state, what) == (EntryState.FAILED_BEFORE, EntryEvent.FOUND_SAME):
                        await self._results.put(earlier_failure(entry, self._batch.output))
                self._wake()

    def _compare(self, entries: list[BatchEntry], state: EntryState) -> list[tuple[BatchEntry, EntryEvent]]:
        with ThreadPoolExecutor(COMPARED_IN_THREADS) as threads:
            one = partial(compare, state=state, root=self._batch.output, hashed=self._batch.hash_inputs)
            return list(zip(entries, threads.map(one, entries), strict=True))

    def _wake(self, _: object = None) -> None:
        self._changed.set()

    def _end_results(self) -> None:
        """Say that nothing follows, even where what is there is not taken."""
        if self._results.full():
            self._results.get_nowait()
        self._results.put_nowait(None)
