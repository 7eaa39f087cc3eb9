"""Runs a batch: lists its files, compares them with earlier runs, keeps files in flight, and records their results."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...actors.task_owner import TaskOwner, consume_exception
from ...cluster.fleet.pool import Pool
from ...errors import Cancelled, WorkError
from ..board.threads import in_thread, shielded
from ..held import Held
from ..request.spec import BatchSpec
from .file_run import FileRun, Submit, Surroundings
from .files import compare_all, database_path
from .listed.intake import Intake
from .listed.places import list_inputs
from .listed.specs import EntrySpecs
from .pacing import wants_file
from .results import BatchProgress, BatchResult, earlier_failure
from .small_files import SmallFiles
from .store.database import BatchDatabase
from .store.ledger import BatchLedger
from .store.schema import BatchEntry
from .store.states import EntryEvent, EntryState, batch_ender
from .tally import Tally

if TYPE_CHECKING:
    from ...cluster.autoscale.later import LaterDemand

_COMPARED_AT_ONCE: Final = 500
_FETCHED_AHEAD: Final = 32
_RESULTS_HELD: Final = 1000  #: No file starts while this many results wait to be taken
_GO_ON: Final = "Finished files are kept; run the same batch again to continue."


class Batch:
    """A running batch. Iterate over it to get the results of its files.

    A failed file's result holds the error. While 1,000 results wait to be taken, no further file starts.
    """

    def __init__(self, batch: BatchSpec, submit: Submit, pool: Pool) -> None:
        self.spec = batch
        self._pool = pool
        specs = EntrySpecs(batch)
        self._database = BatchDatabase(database_path(batch), batch.output)
        self._intake = Intake(batch, specs, self._database.path)
        self._ledger = BatchLedger(self._database.write)
        self._tally = Tally()
        self._small = SmallFiles(batch, pool, lambda: self._tally.waiting)
        self._around = Surroundings(
            batch=batch, specs=specs, ledger=self._ledger, submit=submit, small=self._small, on_change=self._wake
        )
        self._ahead: deque[BatchEntry] = deque()
        self._files: dict[int, FileRun] = {}
        self._owner = TaskOwner()
        self._changed = asyncio.Event()
        self._faults_in_a_row = 0
        self._results: asyncio.Queue[BatchResult | None] = asyncio.Queue(_RESULTS_HELD)
        self._name = f"batch-{secrets.token_hex(4)}"
        self._later: LaterDemand | None = None
        self._began_s = time.monotonic()
        self._held = Held(self._run(), "codecfleet batch")
        self._held.task.add_done_callback(consume_exception)

    async def __aiter__(self) -> AsyncIterator[BatchResult]:
        """Yield the results of the files that end in this run, and of those that failed in an earlier run.

        Files done by earlier runs are only counted.

        Raises:
            UsageError: an input, a list or the template is invalid; no file was started.
            InputNotFound: an input does not exist; no file was started.
            OutputInUse: another process runs the same batch; no file was started.
            WorkError: no further file can be done; another run continues from there.
            Cancelled: the batch was cancelled; another run continues from there.
        """
        while (result := await self._results.get()) is not None:
            yield result
        await self._held.result(Cancelled("the batch was cancelled", _GO_ON))

    @property
    def progress(self) -> BatchProgress:
        """The batch's current progress; after the batch has ended, its final summary."""
        elapsed_s = time.monotonic() - self._began_s
        found = self._tally.progress(list(self._files.values()), elapsed_s=elapsed_s, left_out=self._intake.left_out)
        return replace(found, warm_fleet=self._pool.state.warm_fleet)

    def on_end(self, call: "Callable[[Batch], None]") -> None:
        """Call ``call`` with this batch once the batch has ended."""
        self._held.on_end(lambda: call(self))

    async def cancel(self) -> None:
        """Stop the batch.

        Files in flight keep their finished segments, from which another run continues. Idempotent.
        """
        await self._held.cancel()

    async def _run(self) -> None:
        try:
            await shielded(self._open)
            await self._drive()
        finally:
            try:
                await asyncio.shield(in_thread(self._close))
            finally:
                self._end_results()  # without the marker, a loop over the results would never end

    def _open(self) -> None:
        self._database.open()
        listed = self._intake.entries(list_inputs(self.spec.inputs))
        self._database.take_list(listed, retry_failed=self.spec.retry_failed)
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
                self._owner.start(self._small.watch.run(), "small files")
                comparing = self._owner.start(self._compare_all(), "comparison")
                comparing.add_done_callback(self._wake)
                while self._files or not comparing.done() or self._tally.waiting:
                    self._changed.clear()
                    await self._start_files()
                    self._set_later_demand()
                    await self._changed.wait()
        finally:
            self._pool.set_demand(self._name, None)
            await self._ledger.close()

    async def _start_files(self) -> None:
        while self._tally.waiting and wants_file(
            (file.segments_left for file in self._files.values()),
            slots=max(1, self._pool.state.slots),  # the pool has no slots before the first job starts it
            most=self.spec.files_at_once,
        ):
            if not self._ahead:
                # Computed before the read: an entry that ends during the read may still be returned as waiting.
                busy = frozenset(self._files)
                most = len(busy) + _FETCHED_AHEAD
                found = await in_thread(self._database.entries, EntryState.WAITING, most)
                self._ahead.extend(each for each in found if each.entry not in busy)
            if not self._ahead:
                return
            self._start(self._ahead.popleft())

    def _set_later_demand(self) -> None:
        """Report the demand of waiting files if the demand has changed."""
        like = next((file.job for file in reversed(self._files.values()) if file.job), "")
        room = self.spec.files_at_once - len(self._files)
        later = self._around.planned.later(like, self._tally.waiting, room)
        if later != self._later:
            self._later = later
            self._pool.set_demand(self._name, later)

    def _start(self, entry: BatchEntry) -> None:
        file = FileRun(entry, self._around)
        self._tally.started()
        self._files[entry.entry] = file
        self._owner.start(self._follow(file), f"file {entry.entry}")

    async def _follow(self, file: FileRun) -> None:
        """Run a file to its end; an error raised here ends the whole batch."""
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
        """Check, while other files run, that the results of earlier runs still hold."""
        for state in (EntryState.DONE_BEFORE, EntryState.FAILED_BEFORE):
            while entries := await in_thread(self._database.entries, state, _COMPARED_AT_ONCE):
                found = await in_thread(compare_all, entries, state, self.spec)
                await shielded(self._database.checked, state, [(entry.entry, what) for entry, what in found])
                for entry, what in found:
                    self._tally.compared(entry, state, what)
                    if (state, what) == (EntryState.FAILED_BEFORE, EntryEvent.FOUND_SAME):
                        await self._results.put(earlier_failure(entry, self.spec.output))
                self._wake()

    def _wake(self, _: object = None) -> None:
        self._changed.set()

    def _end_results(self) -> None:
        """Put the end marker into the queue of results, even if the queue is full."""
        if self._results.full():
            self._results.get_nowait()
        self._results.put_nowait(None)
