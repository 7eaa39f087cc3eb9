"""The command ``batch``: its options, the batch with a view of it, and its summary."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final, TextIO

from ...cluster.logs.writing import is_logged
from ...console.batch_live import BatchView, JsonBatchView, PlainBatchView, QuietBatchView, RichBatchView, SummaryView
from ...console.output import Output, ReaderGone, is_terminal
from ...jobs.request.parts import BATCH, RULES
from ...jobs.request.spec import BatchSpec
from ..failures import READER_GONE_CODE
from ..interrupts import Interrupts
from ..params import flag, named, with_spec_options
from ..report_file import ReportFile
from ..services import Commands, Services
from ..transcode import AddressOption, EventsFlag, QuietFlag, check_views
from .dry_run import show_intentions
from .following import GO_ON, BatchFollowing


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommand:
    """A parsed and checked ``batch`` command."""

    spec: BatchSpec
    address: str | None
    report_path: str | None
    as_json: bool
    quiet: bool
    dry_run: bool = False

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the batch, show it, print its summary, and return the exit code: that of its files' worst failure.

        Raises:
            UsageError: the report would replace a list or the database.
            OutputUnwritable: it cannot be written where it is wanted.
        """
        from ...jobs.batch.run import database_path

        if self.dry_run:
            return show_intentions(self, services, stdout, stderr)
        with ReportFile(self.report_path) as report, Interrupts(services.exit_now) as interrupts:
            report.check_others(("INPUT", each) for each in self.spec.inputs)
            report.check_others([("--database", str(database_path(self.spec)))])
            report.check_place()
            interrupts.next_step = GO_ON
            run = BatchFollowing(self, services, _make_view(self, stdout, stderr), interrupts, report)
            try:
                with run.view:
                    return asyncio.run(run.drive())
            except ReaderGone:
                return READER_GONE_CODE
            except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
                return run.failed(error, stdout if self.as_json else None, stderr)


def _make_view(request: BatchCommand, stdout: TextIO, stderr: TextIO) -> BatchView:
    output = Output(stdout)
    if request.as_json:
        return JsonBatchView(output, Output(stderr))
    if request.quiet:
        return QuietBatchView(Output(stderr))
    if is_logged():
        return SummaryView(output)
    if is_terminal(stderr):
        return RichBatchView(output, stderr)
    return PlainBatchView(output, Output(stderr))


_ReportOption = Annotated[
    str | None,
    named(
        "--report",
        "FILE.html",
        "Write an HTML page about the run to this file, even if it ends early: speed, failures, engines, segments by "
        "worker, sizes. Default: none.",
        RULES,
    ),
]


_DryRunFlag = Annotated[
    bool,
    flag(
        "--dry-run",
        "List what the batch would do with each file, and estimate time and size by encoding two seconds of a few "
        "inputs. Writes nothing.",
        BATCH,
    ),
]


def _batch(
    spec: BatchSpec,
    *,
    report: _ReportOption = None,
    as_json: EventsFlag = False,
    quiet: QuietFlag = False,
    address: AddressOption = None,
    dry_run: _DryRunFlag = False,
) -> BatchCommand:
    check_views(as_json=as_json, quiet=quiet)
    return BatchCommand(spec=spec, address=address, report_path=report, as_json=as_json, quiet=quiet, dry_run=dry_run)


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
