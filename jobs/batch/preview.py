"""A dry run: shows how a batch would treat each file, and estimates time and size from a few samples.

The code of a real run is executed on a copy of the batch's database, and nothing else is written.
"""

import asyncio
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...errors import CodecfleetError, InputError, NoVideoTrack, RequestError, StorageFailed
from ..board.threads import in_thread, shielded
from ..plan.asked import asked_of
from ..plan.plan import plan_transcode
from ..report.report import Report
from ..request.spec import BatchSpec, TranscodeSpec
from .files import COMPARED_IN_THREADS, compare_all, database_path, joined, look_at, may_replace
from .listed.intake import Intake
from .listed.places import list_inputs
from .listed.specs import EntrySpecs
from .results import error_of
from .store.database import BatchDatabase
from .store.file import application_of, open_to_read
from .store.schema import BatchEntry, EntryAction
from .store.states import EntryState, exit_code_of

_SAMPLES: Final = 6
_SAMPLE_S: Final = 2
_AT_ONCE: Final = 500


class Intent(Enum):
    """The action that a run would take on a file."""

    ENCODE = "encode"
    COPY = "copy"
    LEAVE_DONE = "done"
    LEAVE_FAILED = "failed"  #: the file failed in an earlier run, and nothing has changed since
    REFUSE = "refuse"  #: the file would fail: options conflict, the input is missing, or the output's name is taken


@dataclass(frozen=True, slots=True)
class Intended:
    """A file, and the action that a run would take on it."""

    intent: Intent
    source: str
    output: str
    error: CodecfleetError | None = None  #: why the file failed or would fail


@dataclass(frozen=True, slots=True)
class SampleFile:
    """The cost of a whole input, estimated from two encoded seconds of that input."""

    source_bytes: int
    output_bytes: float
    busy_s: float  #: how long one slot would be busy


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time and size of the encoding, estimated from samples of the inputs."""

    samples: int
    wall_s: float
    source_bytes: int
    output_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The result of a dry run."""

    counts: dict[Intent, int]
    left_out: int  #: files found without a video extension
    estimate: Estimate | None  #: None if there is nothing to encode, or no sample could be encoded
    failed_samples: tuple[tuple[str, CodecfleetError], ...] = ()  #: inputs that would fail in a run too
    exit_code: int = 0  #: the exit code that a run would have, given the known failures


def estimated(samples: Sequence[SampleFile], source_bytes: int, slots: int) -> Estimate | None:
    """Return the estimated cost of inputs of ``source_bytes`` in total on ``slots`` slots; None without samples."""
    sampled_bytes = sum(each.source_bytes for each in samples)
    if not sampled_bytes:
        return None
    share = source_bytes / sampled_bytes
    return Estimate(
        samples=len(samples),
        wall_s=share * sum(each.busy_s for each in samples) / slots,
        source_bytes=source_bytes,
        output_bytes=share * sum(each.output_bytes for each in samples),
    )


async def preview_batch(
    batch: BatchSpec,
    transcode: Callable[[TranscodeSpec], Awaitable[Report]],
    slots: Callable[[], int],
    show: Callable[[Intended], object],
) -> Preview:
    """Show how a batch would treat each file, then encode samples of the inputs to estimate time and size.

    ``batch`` has absolute paths. ``transcode`` runs a job. ``slots`` returns how many segments run at once, and is
    called after jobs have run. ``show`` is called for each file, in a thread.

    Raises:
        UsageError, InputNotFound: as in a run.
        StorageFailed: the database cannot be read, or the temporary folder is full.
    """
    with tempfile.TemporaryDirectory(prefix="codecfleet-dry-run-") as name:
        folder, dry = Path(name), _DryRun(batch)
        await shielded(dry.list, folder, show)
        jobs = [dry.sample(entry, folder / f"{number}", transcode) for number, entry in enumerate(dry.to_sample)]
        samples = [each for each in await asyncio.gather(*jobs) if each is not None]
        estimate = estimated(samples, dry.source_bytes, slots())
    return Preview(
        counts=dict(dry.counts),
        left_out=dry.left_out,
        estimate=estimate,
        failed_samples=tuple(dry.failed_samples),
        exit_code=exit_code_of(dry.exit_codes),
    )


class _DryRun:
    def __init__(self, batch: BatchSpec) -> None:
        self.counts: Counter[Intent] = Counter()
        self.left_out = 0
        self.source_bytes = 0
        self.to_sample: list[BatchEntry] = []
        self.failed_samples: list[tuple[str, CodecfleetError]] = []
        self.exit_codes: set[int] = set()
        self._batch = batch
        self._specs = EntrySpecs(batch)
        self._misfit = lru_cache(_AT_ONCE)(self._misfit_of)

    def list(self, folder: Path, show: Callable[[Intended], object]) -> None:
        """List the batch in a copy of its database; blocks."""
        real, copy = database_path(self._batch), folder / "batch.sqlite"
        _copy(real, copy)
        database = BatchDatabase(copy, self._batch.output).open()
        try:
            intake = Intake(self._batch, self._specs, real)
            database.take_list(intake.entries(list_inputs(self._batch.inputs)), retry_failed=self._batch.retry_failed)
            self.left_out = intake.left_out
            for state in (EntryState.DONE_BEFORE, EntryState.FAILED_BEFORE):
                self._compare(database, state)
            for state in (EntryState.DONE, EntryState.FAILED, EntryState.WAITING):
                skipped = 0
                while entries := database.entries(state, _AT_ONCE, skip=skipped):
                    skipped += len(entries)
                    for entry, error in self._errors(entries, state):
                        self._see(entry, state, error, show)
            self.to_sample = [each for each in database.spread(_SAMPLES) if self._refusal(each) is None]
        finally:
            database.close()

    def _compare(self, database: BatchDatabase, state: EntryState) -> None:
        while entries := database.entries(state, _AT_ONCE):
            found = compare_all(entries, state, self._batch)
            database.checked(state, [(entry.entry, what) for entry, what in found])

    def _errors(
        self, entries: Sequence[BatchEntry], state: EntryState
    ) -> Iterable[tuple[BatchEntry, CodecfleetError | None]]:
        """Return why each entry failed, or would fail; None if no reason is known."""
        if state is not EntryState.WAITING:
            return [(each, None if state is EntryState.DONE else error_of(each.fault)) for each in entries]
        with ThreadPoolExecutor(COMPARED_IN_THREADS) as threads:
            return list(zip(entries, threads.map(self._refusal, entries), strict=True))

    def _refusal(self, entry: BatchEntry) -> CodecfleetError | None:
        """Return why a run would fail at an entry, as far as that is known without reading the input."""
        is_copy = entry.action is EntryAction.COPY
        misfit = None if is_copy else self._misfit(entry.overrides, Path(entry.output).suffix)
        if misfit is not None:
            return misfit
        try:
            if entry.source_bytes is None:  # the size comes from a listing, which proves that the input exists
                look_at(entry.source, hashed=False)
            may_replace(entry, self._batch.output, entry.output, overwrite=self._batch.overwrite)
        except CodecfleetError as error:
            return error
        return None

    def _misfit_of(self, overrides: str, suffix: str) -> CodecfleetError | None:
        """Return why options do not fit the container that an extension selects."""
        try:
            asked_of(self._specs.spec(overrides, "-", f"-{suffix}"))
        except CodecfleetError as error:
            return error
        return None

    def _see(
        self,
        entry: BatchEntry,
        state: EntryState,
        error: CodecfleetError | None,
        show: Callable[[Intended], object],
    ) -> None:
        intent = {EntryState.DONE: Intent.LEAVE_DONE, EntryState.FAILED: Intent.LEAVE_FAILED}.get(state)
        if intent is None:
            planned = Intent.COPY if entry.action is EntryAction.COPY else Intent.ENCODE
            intent = planned if error is None else Intent.REFUSE
        if intent is Intent.ENCODE:
            self.source_bytes += entry.source_bytes or 0
        if error is not None:
            self.exit_codes.add(error.exit_code)
        self.counts[intent] += 1
        show(Intended(intent, entry.source, joined(self._batch.output, entry.output), error))

    async def sample(
        self, entry: BatchEntry, folder: Path, transcode: Callable[[TranscodeSpec], Awaitable[Report]]
    ) -> SampleFile | None:
        """Encode two seconds from the middle of an input; return None if that fails or gives no frames."""
        try:
            await in_thread(folder.mkdir)
            spec = self._specs.spec(entry.overrides, entry.source, str(folder / Path(entry.output).name))
            plan = await in_thread(plan_transcode, spec)
            report = await transcode(part_of(spec, plan.duration_s))
        except CodecfleetError as error:
            self._note_failed(entry.source, error)
            return None
        if not report.frames or not entry.source_bytes:
            return None
        share = plan.frames / report.frames
        return SampleFile(
            source_bytes=entry.source_bytes,
            output_bytes=report.output_bytes * share,
            busy_s=sum(each.wall_s for each in report.segments) * share,
        )

    def _note_failed(self, source: str, error: CodecfleetError) -> None:
        """Record a failure that a run would also have; other failures, such as a worker's death, are ignored."""
        is_copied = isinstance(error, NoVideoTrack) and self._batch.mirror
        if isinstance(error, InputError | RequestError) and not is_copied:
            self.failed_samples.append((source, error))
            self.exit_codes.add(error.exit_code)


def part_of(spec: TranscodeSpec, duration_s: Fraction) -> TranscodeSpec:
    """Return a job for the middle two seconds of a spec's part.

    A part of up to four seconds is encoded completely.
    """
    fields: dict[str, object] = {"no_journal": True, "if_smaller": False}
    if duration_s > 2 * _SAMPLE_S:
        begin_s = (spec.start_s or 0) + (duration_s - _SAMPLE_S) / 2
        fields |= {"start_s": begin_s, "end_s": begin_s + _SAMPLE_S}
    return spec.model_copy(update=fields)


def _copy(real: Path, copy: Path) -> None:
    """Copy a batch's database, if it exists.

    In the copy, the last run is marked as ended, so that the copy can be opened.
    """
    if not real.exists():
        return
    try:
        if application_of(real) is None:
            return  # the database is empty, as a run on a full disk leaves it
        with closing(open_to_read(real)) as source, closing(sqlite3.connect(copy)) as new:
            source.backup(new)
            new.execute("UPDATE runs SET ended_s = began_s WHERE ended_s IS NULL")
            new.commit()
    except sqlite3.Error as error:
        message = f"the batch's database {real} cannot be read: {error}"
        raise StorageFailed(message, "Check that its disk is mounted, or choose another --database.") from None
