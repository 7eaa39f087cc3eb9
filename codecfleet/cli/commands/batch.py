"""The command ``batch``: its options, the run of the batch with a view, the summary, and the dry run."""

import asyncio
import contextlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TextIO

from ...actors.task_owner import TaskOwner
from ...cluster.logs.writing import is_logged
from ...console.batch_live import (
    SCHEMA_VERSION,
    BatchView,
    JsonBatchView,
    PlainBatchView,
    QuietBatchView,
    RichBatchView,
    SummaryView,
)
from ...console.batch_text import intended_text, preview_lines
from ...console.output import Output, ReaderGone, is_terminal, json_line
from ...errors import CodecfleetError, StorageFailed
from ...jobs.request.parts import BATCH, RULES
from ...jobs.request.spec import BatchSpec
from ..driver_report import tell_driver
from ..failures import interruptible
from ..interrupts import Interrupts
from ..params import flag, named, with_spec_options
from ..report_file import ReportFile
from ..services import Commands, Services
from ..work import FollowedWork
from .transcode import ADDRESS, EVENTS, QUIET, Watched

if TYPE_CHECKING:
    from ...jobs.batch.batch import Batch
    from ...jobs.batch.preview import Intended, Preview
    from ...jobs.report.report import Report

_TICK_S: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class BatchCommand(Watched):
    """A parsed and checked ``batch`` command."""

    spec: BatchSpec
    dry_run: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run and show the batch, print the summary, and return the exit code of the worst failure.

        Raises UsageError: the report would replace a list or the database; OutputUnwritable: the report cannot be
        written.
        """
        from ...jobs.batch.files import database_path

        if self.dry_run:
            return interruptible(services, stderr, lambda _: self._preview(services, Output(stdout)))
        with ReportFile(self.report) as report, Interrupts(services.exit_now) as interrupts:
            inputs = (("INPUT", each) for each in self.spec.inputs)
            report.check(*inputs, ("--database", str(database_path(self.spec))))
            interrupts.next_step = _BatchWork.interrupted_step
            batch = _BatchWork(self, self._view(stdout, stderr), services, interrupts, report)
            return batch.run(stderr, stdout if self.as_json else None)

    def _view(self, stdout: TextIO, stderr: TextIO) -> BatchView:
        output = Output(stdout)
        if self.as_json:
            return JsonBatchView(output, Output(stderr))
        if self.quiet:
            return QuietBatchView(Output(stderr))
        if is_logged():
            return SummaryView(output)
        if is_terminal(stderr):
            return RichBatchView(output, stderr)
        return PlainBatchView(output, Output(stderr))

    def _preview(self, services: Services, output: Output) -> int:
        """Print a line for each file, or with ``--json`` an event, and a summary."""

        def show(intended: "Intended") -> None:
            output.line(json_line(_intended(intended)) if self.as_json else intended_text(intended))

        preview = services.preview_batch(self.spec, self.address, show)
        for line in [json_line(_summary(preview))] if self.as_json else preview_lines(preview):
            output.line(line)
        return preview.exit_code


def _intended(intended: "Intended") -> dict[str, object]:
    facts = {"intent": intended.intent.value, "source": intended.source, "output": intended.output}
    return {"schema": SCHEMA_VERSION, "event": "file_intended", **facts, **_fault(intended.error)}


def _fault(error: CodecfleetError | None) -> dict[str, object]:
    if error is None:
        return {}
    return {"error": type(error).__name__, "message": error.message, "next_step": error.next_step}


def _summary(preview: "Preview") -> dict[str, object]:
    counts = {intent.value: count for intent, count in preview.counts.items()}
    estimate = None if preview.estimate is None else asdict(preview.estimate)
    failed = [{"source": source, **_fault(error)} for source, error in preview.failed_samples]
    facts = {"files": counts, "left_out": preview.left_out, "estimate": estimate, "failed_samples": failed}
    return {"schema": SCHEMA_VERSION, "event": "batch_intended", **facts}


class _BatchWork(FollowedWork[BatchCommand, BatchView]):
    stopping = "stopping"
    interrupted_step = "Finished files are kept; run the same command to do the others."
    _warm_fleet: int | None = None
    _used = (0.0, 0.0, 0)

    async def drive(self) -> int:
        async with self._services.open_batch(self._request.spec, self._request.address) as batch:
            try:
                async with TaskOwner() as owner:
                    self.cancel_by(owner, batch.cancel)
                    owner.start(self._tick(batch), "view")
                    async for result in batch:
                        self._note_warm_fleet(batch)
                        self._note_used(result.report)
                        self._view.show(result, batch.progress)
            except ReaderGone:
                await batch.cancel()
                raise
            finally:
                self._write_report(batch)
            # Both calls come before the fleet closes, so that the summary does not wait until Ray has ended.
            self._interrupts.published()
            with contextlib.suppress(StorageFailed):
                self._view.finish(batch.progress)
            return batch.progress.exit_code

    def _note_used(self, report: "Report | None") -> None:
        if report is not None:
            cores, gpus, size = report.used
            self._used = (self._used[0] + cores, self._used[1] + gpus, self._used[2] + size)
            tell_driver(used=self._used)  # at once: this process may be killed

    def _write_report(self, batch: "Batch") -> None:
        """Write the page, if one was requested and files were listed. A failure here does not fail the batch."""
        if self._request.report is None or not batch.progress.files:
            return
        try:
            self._report.write_text(self._services.batch_page(self._request.spec), "the batch has ended")
        except StorageFailed as error:
            self._view.note(f"warning: {error.message}")

    async def _tick(self, batch: "Batch") -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._note_warm_fleet(batch)
            self._view.tick(batch.progress)

    def _note_warm_fleet(self, batch: "Batch") -> None:
        process = batch.progress.warm_fleet
        if process is not None and process != self._warm_fleet:
            self._view.note(f"on the warm fleet (process {process})")
        self._warm_fleet = process


def _batch(
    spec: BatchSpec,
    *,
    report: str | None = named(
        "--report",
        "FILE.html",
        "Write an HTML page about the run to this file, even if the run ends early: speed, failures, engines, "
        "segments by worker, sizes. Default: none.",
        RULES,
    ),
    as_json: bool = EVENTS,
    quiet: bool = QUIET,
    address: str | None = ADDRESS,
    dry_run: bool = flag(
        "--dry-run",
        "List what the batch would do with each file, and estimate time and size by encoding two seconds of a few "
        "inputs. Writes nothing.",
        BATCH,
    ),
) -> BatchCommand:
    return BatchCommand(spec=spec, address=address, report=report, as_json=as_json, quiet=quiet, dry_run=dry_run)


COMMANDS: Final[Commands] = {
    "batch": (
        with_spec_options(_batch, BatchSpec),
        [
            "batch films --output small --codec hevc --quality 26",
            "batch list.csv --output small --output-template '{stem}.mp4'",
            "batch 'films/**/*.mov' --output web --spec web.toml --retry-failed",
            "batch s3://bucket/films/ --output s3://bucket/small --database films.sqlite",
        ],
    ),
}
