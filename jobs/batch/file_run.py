"""One try at an entry: checks the input, makes its output's folder, runs the job, and records the result."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from ...actors.media.location import is_local, local_path
from ...cluster.logs.actions import LogAction
from ...cluster.logs.entry import LogIds
from ...cluster.logs.writing import log
from ...cluster.worker_names import WorkerId
from ...errors import (
    CodecfleetError,
    InputUnreadable,
    JournalRefused,
    NotSmaller,
    NoVideoTrack,
    OutputExists,
    OutputInUse,
)
from ..board.threads import in_thread, shielded
from ..join.owner import LEASE_S, RENEWED_EVERY_S
from ..join.proof import has_content
from ..report.events import Event, Planned, Progress, SegmentFinished
from ..report.report import Report
from ..request.spec import BatchSpec, TranscodeSpec
from .files import (
    SeenInput,
    copy_whole,
    joined,
    look_at,
    make_place,
    output_bytes,
    remove_dead_work,
    with_suffix_of,
)
from .listed.specs import EntrySpecs
from .pacing import PlannedFiles
from .results import BatchResult
from .small_files import SmallFiles, may_be_whole
from .store.ledger import BatchLedger
from .store.schema import (
    BatchEntry,
    CopyNoted,
    EndedBadly,
    EntryAction,
    FileEnded,
    FileResult,
    FileStarted,
    PutBack,
    SegmentSpan,
)
from .store.states import EntryEvent, after_error

IN_USE_S: Final = LEASE_S + RENEWED_EVERY_S
"""How long to wait for an output that is in use: until a dead machine's lease on the output has ended.

The output of a killed process on this machine is in use until the kernel has cleaned up, which takes seconds on a busy
machine.
"""
_POLL_S: Final = 0.25
ResultT = TypeVar("ResultT")


class SubmittedJob(Protocol):
    """The part of ``Job`` that a batch uses."""

    @property
    def id(self) -> str:
        """The job's name."""

    def events(self) -> AsyncIterator[Event]:
        """Yield the job's events until the job ends."""

    def __await__(self) -> Generator[Any, None, Report]: ...

    async def cancel(self, *, keep: bool = False) -> None:
        """Stop the job. With ``keep``, the same job continues from its finished segments when submitted again."""


Submit = Callable[[TranscodeSpec], Awaitable[SubmittedJob]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The objects that all files of a batch share."""

    batch: BatchSpec
    specs: EntrySpecs
    ledger: BatchLedger
    submit: Submit
    small: SmallFiles
    on_change: Callable[[], object]  #: called when a file's progress has changed
    planned: PlannedFiles = field(default_factory=PlannedFiles)


@dataclass(slots=True)
class FileRun:
    """One try at a file, and its progress. Call ``run`` once."""

    entry: BatchEntry
    around: Surroundings
    segments_left: int | None = None  #: None until the job of this try is planned
    frames_done: int = 0
    frames_total: int = 0  #: 0 until the job of this try is planned
    job: str = ""  #: "" until the job of this try is planned
    _began_s: float = 0.0
    _is_started: bool = False  #: whether this try may have written the file under the output's name
    _seen: SeenInput | None = None
    _found: tuple[str | None, int | None] = (None, None)  #: name and size of the file that had the output's name before
    _spans: dict[int, SegmentSpan] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """The path or URL of the output."""
        return joined(self.around.batch.output, self.entry.output)

    async def run(self) -> tuple[BatchResult | None, BaseException | None]:
        """Return the file's result (None if the file will be tried again) and the error, if there was one.

        Raises:
            OutputInUse, StorageFailed: the database cannot be written.
            asyncio.CancelledError: the batch is ending; the entry is waiting to run again.
        """
        self._began_s = time.time()
        try:
            published = await self._published()
        except asyncio.CancelledError:
            await self._put_back(self.entry.tries, in_flight=self._is_started)
            raise
        except Exception as error:  # noqa: BLE001 - any error, even a defect, ends only this file
            return await self._failed(error), error
        await self.around.ledger.write(self._ended(published))
        result = self._result(published=published)
        line = f"{result.output}: {published.result.value}, {published.output_bytes} bytes in {result.wall_s:.1f} s"
        self._log(LogAction.FILE_DONE, line)
        return result, None

    async def _published(self) -> "_Published":
        entry, batch = self.entry, self.around.batch
        spec = self.around.specs.spec(entry.overrides, entry.source, self.output)
        self._seen = await in_thread(look_at, entry.source, hashed=batch.hash_inputs)
        if entry.action is EntryAction.COPY:
            return await self._copied(entry.output, FileResult.COPIED, overwrite=spec.overwrite)
        try:
            may_replace = await in_thread(make_place, entry, batch.output, entry.output, overwrite=spec.overwrite)
        except OutputExists as taken:
            if not entry.was_in_use:
                raise
            report = await self._found_done(spec, taken)
            await self._started(entry.output)
            return _Published(entry.output, FileResult.ENCODED, report.output_bytes, report)
        await self._started(entry.output)
        as_source = with_suffix_of(entry.source, entry.output)
        try:
            report = await self._encoded(spec.model_copy(update={"overwrite": may_replace}))
        except NotSmaller:
            return await self._copied(as_source, FileResult.KEPT, overwrite=spec.overwrite)
        except NoVideoTrack:
            if not batch.mirror:
                raise
            return await self._copied(as_source, FileResult.COPIED, overwrite=spec.overwrite)
        return _Published(entry.output, FileResult.ENCODED, report.output_bytes, report)

    async def _copied(self, output: str, result: FileResult, *, overwrite: bool) -> "_Published":
        entry, root = self.entry, self.around.batch.output
        if joined(root, output) == entry.source:  # the input already has the copy's name
            there = await in_thread(output_bytes, root, output)
            return _Published(output, result, there or 0, None)
        may_replace = await in_thread(make_place, entry, root, output, overwrite=overwrite)
        await self._started(output)
        await self._note_copy(output, (output, None if self._seen is None else self._seen.size_bytes))
        try:
            size = await shielded(copy_whole, entry.source, joined(root, output), overwrite=may_replace)
        except CodecfleetError:
            await self._note_copy(output, self._found)
            raise
        return _Published(output, result, size, None)

    async def _note_copy(self, output: str, found: tuple[str | None, int | None]) -> None:
        """Record that this try writes a copy, and which file has the copy's name now."""
        if output != self.entry.output:
            await self.around.ledger.write(CopyNoted(entry=self.entry.entry, found=found))

    async def _started(self, output: str) -> None:
        """Record, once, that this try may now write the output, and which file has the output's name now."""
        if self._is_started:
            return
        entry, found = self.entry, None
        if entry.was_in_flight:
            there = await in_thread(output_bytes, self.around.batch.output, output)
            found = None if there is None else (output, there)
        self._found = found or (entry.published, entry.output_bytes)
        await self.around.ledger.write(FileStarted(entry=entry.entry, tries=entry.tries + 1, found=found))
        self._is_started = True

    async def _encoded(self, spec: TranscodeSpec) -> Report:
        """Run the job; start over if an earlier try's journal has other options or another input."""
        size_bytes = None if self._seen is None else self._seen.size_bytes
        if may_be_whole(self.entry, spec, self.around.batch, size_bytes):
            return await self._whole(spec) or await self._once_more(spec)
        try:
            return await self._report(spec)
        except JournalRefused:
            if not self.entry.was_in_flight:
                raise
            return await self._report(spec.model_copy(update={"restart": True}))

    async def _once_more(self, spec: TranscodeSpec) -> Report:
        """Run the job of a file that a worker may have published without reporting success."""
        try:
            return await self._report(spec)
        except OutputExists as taken:
            return await self._found_done(spec, taken)

    async def _found_done(self, spec: TranscodeSpec, taken: OutputExists) -> Report:
        """Return the report of an output that an earlier try may have published before that try was killed.

        An output with the expected bytes was written by this job, since a job gives the same bytes in every run. Raises
        ``taken``: the bytes differ, so another program wrote the file.
        """
        if not is_local(spec.output):
            raise taken
        await _when_free(partial(in_thread, remove_dead_work, spec.output))
        folder = await in_thread(tempfile.mkdtemp, prefix="codecfleet-")
        try:
            beside = str(Path(folder, local_path(spec.output).name))
            report = await self._report(spec.model_copy(update={"output": beside, "no_journal": True}))
        finally:
            await shielded(shutil.rmtree, folder, ignore_errors=True)
        if not await in_thread(has_content, spec.output, report.output_bytes, report.proof.output_sha256):
            raise taken
        return report.model_copy(update={"output": spec.output})

    async def _whole(self, spec: TranscodeSpec) -> Report | None:
        """Encode a small file in one worker; return None if the file needs a separate job."""
        try:
            done = await self.around.small.encoded(self.entry, spec)
        except (InputUnreadable, NotSmaller, NoVideoTrack):
            raise
        except CodecfleetError:
            return None
        if done is None:
            return None
        self._spans[done.span.segment] = done.span
        return done.report

    async def _report(self, spec: TranscodeSpec) -> Report:
        return await _when_free(partial(self._run_job, spec))

    async def _run_job(self, spec: TranscodeSpec) -> Report:
        job = await self.around.submit(spec)
        try:
            await self._follow(job)
            return await job
        except asyncio.CancelledError:
            await job.cancel(keep=True)
            raise

    async def _follow(self, job: SubmittedJob) -> None:
        async for event in job.events():
            match event:
                case Planned():
                    self._plan(job.id, event)
                case Progress():
                    self.frames_done = event.frames_done
                case SegmentFinished():
                    self._finish(event)
                case _:
                    continue
            self.around.on_change()

    def _plan(self, job: str, event: Planned) -> None:
        if not self.job:
            self.around.planned.add(event.segments, event.frames)
        self.job, self.segments_left, self.frames_total = job, event.segments, event.frames

    def _finish(self, event: SegmentFinished) -> None:
        if self.segments_left:
            self.segments_left -= 1
        now_s = time.time()
        self._spans[event.segment] = SegmentSpan(
            segment=event.segment,
            began_s=now_s - event.wall_s,
            ended_s=now_s,
            frames=event.frames,
            station=WorkerId(event.worker).station,
            decoded_by="",
        )

    def _ended(self, published: "_Published") -> FileEnded:
        if self._seen is None:
            raise AssertionError(self.entry)
        ended = FileEnded(
            entry=self.entry.entry,
            content=self._seen.content,
            source_bytes=self._seen.size_bytes,
            began_s=self._began_s,
            ended_s=time.time(),
            result=published.result,
            published=published.output,
            output_bytes=published.output_bytes,
        )
        if (report := published.report) is None:
            return ended
        self.frames_done = self.frames_total = report.frames
        decoded_by = {each.segment: each.decoded_by for each in report.segments}
        spans = [replace(span, decoded_by=decoded_by[n]) for n, span in sorted(self._spans.items()) if n in decoded_by]
        return replace(
            ended,
            frames=report.frames,
            duration_s=float(Fraction(report.duration_s)),
            encoder=report.encoder_kind,
            segments=tuple(spans),
        )

    async def _failed(self, error: Exception) -> BatchResult | None:
        tries = self.entry.tries + 1
        if after_error(error, tries) is EntryEvent.PUT_BACK:
            await self._put_back(tries, in_flight=False)
            self._log(LogAction.FILE_RETRIED, f"try {tries} failed: {type(error).__name__}: {error}")
            return None
        result = self._result(error=error)
        self._log(LogAction.FILE_FAILED, f"{result.error_class}: {result.message}")
        await self.around.ledger.write(
            EndedBadly(
                entry=self.entry.entry,
                content=None if self._seen is None else self._seen.content,
                began_s=self._began_s,
                ended_s=time.time(),
                error=result.error_class,
                exit_code=result.exit_code,
                message=result.message,
                next_step=error.next_step
                if isinstance(error, CodecfleetError)
                else "Report this error: it is a defect of codecfleet.",
            )
        )
        return result

    def _log(self, action: LogAction, line: str) -> None:
        log(action, line, LogIds(file=self.entry.source))

    async def _put_back(self, tries: int, *, in_flight: bool) -> None:
        await self.around.ledger.write(PutBack(entry=self.entry.entry, tries=tries, in_flight=in_flight))

    def _result(self, *, published: "_Published | None" = None, error: Exception | None = None) -> BatchResult:
        output = self.entry.output if published is None else published.output
        return BatchResult(
            source=self.entry.source,
            output=joined(self.around.batch.output, output),
            result=None if published is None else published.result,
            error=error,
            report=None if published is None else published.report,
            source_bytes=None if self._seen is None else self._seen.size_bytes,
            output_bytes=None if published is None else published.output_bytes,
            tries=self.entry.tries + 1,
            wall_s=time.time() - self._began_s,
        )


@dataclass(frozen=True, slots=True)
class _Published:
    output: str  #: relative to the root
    result: FileResult
    output_bytes: int
    report: Report | None  #: None for a copy


async def _when_free(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Await ``call``; retry it for up to ``IN_USE_S`` while another process holds the output."""
    for _ in range(int(IN_USE_S / _POLL_S)):
        with suppress(OutputInUse):
            return await call()
        await asyncio.sleep(_POLL_S)
    return await call()
