"""Counts a batch's files by state and measures its pace in memory, so that showing progress needs no disk access."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..report.time_left import time_left_s
from .file_run import FileRun
from .results import BatchProgress, BatchResult, FileProgress
from .store.database import BatchDatabase
from .store.schema import BatchEntry, FileFault
from .store.states import EntryEvent, EntryState, exit_code_of

FAILED_FILES: Final = 10  #: How many failed files a summary names


class Tally:
    """The counts of one run, from its listing to its end."""

    def __init__(self) -> None:
        self._files: Counter[EntryState] = Counter()
        self._skipped = 0
        self._failures: Counter[tuple[str, int]] = Counter()
        self._failed_files: list[tuple[str, FileFault]] = []
        self._source_bytes, self._output_bytes = 0, 0
        self._frames = 0
        self._left_bytes, self._ended_bytes = 0, 0
        self._ended = 0

    @property
    def waiting(self) -> int:
        """How many files wait."""
        return self._files[EntryState.WAITING]

    def begin(self, database: BatchDatabase) -> None:
        """Count the run's listed files."""
        self._files.update(database.counts())
        self._left_bytes = database.bytes_in(EntryState.WAITING)[0]

    def end(self, database: BatchDatabase) -> None:
        """Take the final counts from the database, including the failures of earlier runs."""
        self._files = Counter(database.counts())
        self._source_bytes, self._output_bytes = database.bytes_in(EntryState.DONE)
        self._failures = Counter({(error, code): count for error, code, count in database.failures()})
        self._failed_files = database.failed_files(FAILED_FILES)

    def started(self) -> None:
        """Count a file as running instead of waiting."""
        self._move(EntryState.WAITING, EntryState.RUNNING)

    def ended(self, entry: BatchEntry, result: BatchResult | None) -> None:
        """Count the end of a try; without a result, the file waits again."""
        if result is None:
            self._move(EntryState.RUNNING, EntryState.WAITING)
            return
        self._ended += 1
        self._ended_bytes += entry.source_bytes or 0
        self._left_bytes -= entry.source_bytes or 0
        if result.error is not None:
            self._move(EntryState.RUNNING, EntryState.FAILED)
            self._failures[result.error_class, result.exit_code] += 1
            return
        self._move(EntryState.RUNNING, EntryState.DONE)
        self._source_bytes += result.source_bytes or 0
        self._output_bytes += result.output_bytes or 0
        if result.report is not None:
            self._frames += sum(each.frames_out for each in result.report.segments if not each.restored)

    def compared(self, entry: BatchEntry, state: EntryState, found: EntryEvent) -> None:
        """Count an entry of an earlier run, after its recorded result was compared with the files."""
        if found is EntryEvent.FOUND_CHANGED:
            self._move(state, EntryState.WAITING)
            self._left_bytes += entry.source_bytes or 0
            return
        done = state is EntryState.DONE_BEFORE
        self._move(state, EntryState.DONE if done else EntryState.FAILED)
        if done:
            self._skipped += 1
            self._source_bytes += entry.source_bytes or 0
            self._output_bytes += entry.output_bytes or 0

    def progress(self, running: Sequence[FileRun], *, elapsed_s: float, left_out: int) -> BatchProgress:
        """Return the progress ``elapsed_s`` after the start, with these files in flight."""
        count = self._files
        frames = self._frames + sum(file.frames_done for file in running)
        in_flight = sum(_part(file) for file in running)
        in_flight_bytes = sum(_part(file) * (file.entry.source_bytes or 0) for file in running)
        if self._left_bytes > 0:
            done, left = self._ended_bytes + in_flight_bytes, self._left_bytes - in_flight_bytes
        else:
            done, left = self._ended + in_flight, self.waiting + len(running) - in_flight
        return BatchProgress(
            elapsed_s=elapsed_s,
            files=count.total(),
            done=count[EntryState.DONE],
            skipped=self._skipped,
            failed=count[EntryState.FAILED],
            waiting=count.total() - count[EntryState.DONE] - count[EntryState.FAILED] - count[EntryState.RUNNING],
            running=tuple(FileProgress(file.entry.source, file.frames_done, file.frames_total) for file in running),
            frames=frames,
            fps=frames / elapsed_s if elapsed_s > 0 else 0.0,
            eta_s=time_left_s(elapsed_s, done=done, left=left),
            source_bytes=self._source_bytes,
            output_bytes=self._output_bytes,
            left_out=left_out,
            failures=tuple((error, files) for (error, _), files in self._failures.most_common()),
            failed_files=tuple(self._failed_files),
            exit_code=exit_code_of({code for _, code in self._failures}),
        )

    def _move(self, before: EntryState, now: EntryState) -> None:
        self._files[before] -= 1
        self._files[now] += 1


def _part(file: FileRun) -> float:
    return file.frames_done / file.frames_total if file.frames_total else 0.0
