"""The command ``transcode``: its options, the job with a view of it, and its report."""

import asyncio
import contextlib
import shlex
import time
from dataclasses import dataclass, replace
from typing import Annotated, Final, TextIO

from ..actors.task_owner import TaskOwner
from ..cluster.logs.writing import is_logged
from ..console.live import JsonView, PlainView, ProofView, RichView, View
from ..console.output import Output, ReaderGone, is_terminal, json_line
from ..errors import StorageFailed, UsageError
from ..jobs.report.events import Event, Failed, JournalOpened, SegmentFinished, WorkKept
from ..jobs.report.report import Report
from ..jobs.request.parts import RULES, RUN
from ..jobs.request.spec import TranscodeSpec
from .calls.answers import JobLike
from .failures import READER_GONE_CODE, failure_of, print_failure
from .interrupts import Interrupts
from .params import flag, named, usual_address_of, with_spec_options
from .report_file import ReportFile
from .sandbox.files import FileUse
from .services import Commands, Services

_START_AGAIN: Final = "Nothing was published; run the same command to start again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcode:
    """A parsed and checked ``transcode`` command."""

    spec: TranscodeSpec
    address: str | None
    report_path: str | None
    as_json: bool
    quiet: bool

    @property
    def files(self) -> FileUse:
        """The files that it needs."""
        return FileUse.of_job(self.spec, self.address, self.report_path)

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the job, show it, print its proof, and return the exit code.

        Raises:
            UsageError: the report would overwrite the input or the output.
            OutputUnwritable: the report cannot be written where it is wanted.
        """
        with ReportFile(self.report_path) as report, Interrupts(services.exit_now) as interrupts:
            report.check(self.spec)
            run = _Run(self, services, make_view(self, stdout, stderr), interrupts, report)
            try:
                with run.view:
                    asyncio.run(run.drive())
            except ReaderGone:
                return 0 if run.published else READER_GONE_CODE
            except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
                return run.failed(error, stdout, stderr)
            return 0


def make_view(request: Transcode, stdout: TextIO, stderr: TextIO) -> View:
    """Return the view for these options and streams."""
    output = Output(stdout)
    if request.as_json:
        return JsonView(output, Output(stderr))
    if request.quiet:
        return View()
    if is_logged():
        return ProofView(output)
    if is_terminal(stderr):
        return RichView(output, stderr)
    return PlainView(output, Output(stderr))


class _Run:
    """One job from the start of its fleet to its end."""

    def __init__(
        self, request: Transcode, services: Services, view: View, interrupts: Interrupts, report: ReportFile
    ) -> None:
        self.view = view
        self.published = False
        self._request = request
        self._services = services
        self._interrupts = interrupts
        self._report = report
        self._started_s = time.monotonic()
        self._task: asyncio.Task[object] | None = None
        self._job: JobLike | None = None
        self._job_name = ""
        self._is_cancelled = asyncio.Event()
        self._work = ""
        self._kept = ""

    async def drive(self) -> None:
        self._task = asyncio.current_task()
        self._interrupts.attach(self.cancel)
        spec = self._request.spec
        async with self._services.open_fleet(self._request.address, spec.workers) as fleet:
            self._job = await fleet.transcode(spec)
            async with TaskOwner() as owner:
                owner.start(self._cancel_when_asked(self._job), "cancellation")
                try:
                    report = await self._follow(self._job)
                except ReaderGone:
                    await self._job.cancel(keep=True)
                    raise
            self._finish(report)

    async def _cancel_when_asked(self, job: JobLike) -> None:
        await self._is_cancelled.wait()
        await job.cancel(keep=True)

    async def _follow(self, job: JobLike) -> Report:
        async for event in job.events():
            self._job_name = event.job
            if isinstance(event, Failed):  # said once it is known what the user may do
                break
            self._see(event)
            self.view.show(event)
        return await job

    def _see(self, event: Event) -> None:
        match event:
            case JournalOpened(work=work, restored=restored):
                self._work = work
                self._interrupts.next_step = continue_step(work) if restored else ""
            case SegmentFinished() if self._work:
                self._interrupts.next_step = continue_step(self._work)
            case WorkKept(work=work):
                self._kept = work

    def _finish(self, report: Report) -> None:
        # Before the fleet closes: the proof need not wait for Ray's shutdown.
        self.published = True
        self._interrupts.published()
        self._report.write(report)
        try:
            self.view.finish(report, self._request.report_path)
        except StorageFailed as error:
            self.view.note(f"warning: {error.message}; the output is published", style="yellow")

    def cancel(self) -> None:
        """Cancel the job, or its start; in the event loop."""
        self.view.note("cancelling; press Ctrl-C again to stop at once")
        if self._job is not None:
            self._is_cancelled.set()
        elif self._task is not None:
            self._task.cancel()

    def failed(self, error: BaseException, stdout: TextIO, stderr: TextIO) -> int:
        failure = failure_of(error, self._interrupts.exit_code, interrupted_step=_START_AGAIN)
        if self._kept:
            before = "" if failure.next_step == _START_AGAIN else f"{failure.next_step} "
            failure = replace(failure, next_step=before + continue_step(self._kept))
        event = Failed(
            job=self._job_name,
            at_s=round(time.monotonic() - self._started_s, 3),
            error=failure.error,
            message=failure.message,
            next_step=failure.next_step,
            exit_code=failure.exit_code,
        )
        if self._request.as_json:
            with contextlib.suppress(ReaderGone, StorageFailed):
                Output(stdout).line(json_line(event.to_json()))
        print_failure(failure, error, stderr)
        return failure.exit_code


def continue_step(work: str) -> str:
    """Return what to type to go on with what is finished."""
    return f"What is finished is kept: `codecfleet resume {shlex.quote(work)}`, or the same command, continues it."


def check_views(*, as_json: bool, quiet: bool) -> None:
    """Raise UsageError where both are asked for."""
    if as_json and quiet:
        raise UsageError("--json and --quiet exclude each other", "Leave one of them out.")


ReportOption = Annotated[
    str | None,
    named(
        "--report",
        "FILE.json",
        "Write the report to this file, replacing an older one. It appears only when it is complete; a pipe or "
        "a device receives it as a stream. Default: none.",
        RULES,
    ),
]
EventsFlag = Annotated[
    bool, flag("--json", "Print one JSON event per line on stdout, for programs: docs/events.md.", RULES)
]
QuietFlag = Annotated[bool, flag("--quiet", "Print only errors. Warnings are in the report.", RULES)]
AddressOption = Annotated[
    str | None,
    usual_address_of(
        "Use this Ray cluster: host:port, or auto for the one on this machine: docs/fleet.md. Default: the "
        "environment's RAY_ADDRESS or the configuration's, else this machine.",
        RUN,
    ),
]


def _transcode(
    spec: TranscodeSpec,
    *,
    report: ReportOption = None,
    as_json: EventsFlag = False,
    quiet: QuietFlag = False,
    address: AddressOption = None,
) -> Transcode:
    check_views(as_json=as_json, quiet=quiet)
    return Transcode(spec=spec, address=address, report_path=report, as_json=as_json, quiet=quiet)


COMMANDS: Final[Commands] = {
    "transcode": (
        with_spec_options(_transcode),
        [
            "transcode film.mkv film.mp4",
            "transcode film.mkv small.mp4 --codec hevc --scale 720p --quality 26",
            "transcode film.mov web.webm --bitrate 2.5M --audio opus --workers 4",
            "transcode film.ts part.mkv --start 1:30 --end 2:00 --report part.json",
        ],
    ),
}
