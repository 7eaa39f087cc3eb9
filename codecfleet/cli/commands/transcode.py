"""The commands ``transcode`` and ``resume``: their options, the run of the job with a view, and the report."""

import shlex
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ...actors.task_owner import TaskOwner
from ...cluster.logs.writing import is_logged
from ...console.live import JsonView, PlainView, ProofView, RichView, View
from ...console.output import Output, ReaderGone, is_terminal
from ...errors import StorageFailed, UsageError
from ...jobs.report.events import Failed, JournalOpened, SegmentFinished, WorkKept
from ...jobs.report.report import Report
from ...jobs.request.parts import RULES, RUN
from ...jobs.request.spec import TranscodeSpec
from ...jobs.request.values import parse_path
from ..driver_report import has_driver, tell_driver
from ..failures import Failure
from ..interrupts import Interrupts
from ..params import flag, named, usual_address_of, with_spec_options
from ..report_file import ReportFile
from ..sandbox import FileUse
from ..services import Commands, Services
from ..work import FollowedWork

if TYPE_CHECKING:
    from ...jobs.job import Job


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Where the work of a command runs, and how it is shown. Raises UsageError if two views are requested."""

    address: str | None
    report: str | None
    as_json: bool
    quiet: bool

    def __post_init__(self) -> None:
        if self.as_json and self.quiet:
            raise UsageError("--json and --quiet exclude each other", "Leave one of them out.")


@dataclass(frozen=True, kw_only=True)
class Transcode(Watched):
    """A parsed and checked ``transcode`` command."""

    spec: TranscodeSpec

    @property
    def files(self) -> FileUse:
        """The files that the command reads and writes, for the sandbox."""
        return FileUse.of_job(self.spec, self.address, self.report)

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the job, show it, print the proof, and return the exit code.

        Raises UsageError: the report would overwrite the input or the output; OutputUnwritable: the report cannot be
        written.
        """
        with ReportFile(self.report) as report, Interrupts(services.exit_now) as interrupts:
            report.check(("INPUT", self.spec.source), ("OUTPUT", self.spec.output))
            job = _JobWork(self, make_view(self, stdout, stderr), services, interrupts, report)
            return job.run(stderr, stdout if self.as_json else None)


def make_view(request: Transcode, stdout: TextIO, stderr: TextIO) -> View:
    """Return the view for these options and streams."""
    output = Output(stdout)
    if request.as_json:
        return JsonView(output, Output(stderr))
    return View() if request.quiet else usual_view(stdout, stderr)


def usual_view(stdout: TextIO, stderr: TextIO) -> View:
    """Return the view for these streams: live on a terminal, lines elsewhere."""
    output = Output(stdout)
    if is_logged():
        return ProofView(output)
    if is_terminal(stderr):
        return RichView(output, stderr)
    return PlainView(output, Output(stderr))


class _JobWork(FollowedWork[Transcode, View]):
    stopping = "cancelling"
    interrupted_step = "Nothing was published; run the same command to start again."
    _work = ""
    _kept = ""

    async def drive(self) -> int:
        spec = self._request.spec
        async with self._services.open_fleet(self._request.address, spec.workers) as fleet:
            job = await fleet.transcode(spec, keeps_record=has_driver())
            async with TaskOwner() as owner:
                self.cancel_by(owner, partial(job.cancel, keep=True))
                try:
                    report = await self._follow(job)
                except ReaderGone:
                    await job.cancel(keep=True)
                    raise
            self._finish(report)
        return 0

    async def _follow(self, job: "Job") -> Report:
        async for event in job.events():
            self._job_name = event.job
            if isinstance(event, Failed):  # printed once the next step is known
                break
            match event:
                case JournalOpened(work=work, restored=restored):
                    self._work = work
                    self._interrupts.next_step = continue_step(work) if restored else ""
                case SegmentFinished() if self._work:
                    self._interrupts.next_step = continue_step(self._work)
                case WorkKept(work=work):
                    self._kept = work
            self._view.show(event)
        return await job

    def _finish(self, report: Report) -> None:
        # Called before the fleet closes, because the proof need not wait until Ray has ended.
        self._is_published = True
        self._interrupts.published()
        tell_driver(used=report.used, record=self._work)
        self._report.write(report)
        try:
            self._view.finish(report, self._request.report)
        except StorageFailed as error:
            self._view.note(f"warning: {error.message}; the output is published", style="yellow")

    def failure(self, error: BaseException) -> Failure:
        failure = super().failure(error)
        if not self._kept:
            return failure
        before = "" if failure.next_step == self.interrupted_step else f"{failure.next_step} "
        return replace(failure, next_step=before + continue_step(self._kept))


def continue_step(work: str) -> str:
    """Return the command that continues from the finished segments."""
    return (
        f"Finished segments are kept: `codecfleet resume {shlex.quote(work)}`, or the same command, continues the job."
    )


REPORT = named(
    "--report",
    "FILE.json",
    "Write the report to this file, replacing an older one. It appears only when it is complete; a pipe or "
    "a device receives it as a stream. Default: none.",
    RULES,
)
EVENTS = flag("--json", "Print one JSON event per line on stdout, for programs: docs/events.md.", RULES)
QUIET = flag("--quiet", "Print only errors. Warnings are in the report.", RULES)
ADDRESS = usual_address_of(
    "Use this Ray cluster: host:port, or auto for the one on this machine: docs/fleet.md. Default: the "
    "environment's RAY_ADDRESS or the configuration's, else this machine.",
    RUN,
)


def _transcode(
    spec: TranscodeSpec,
    *,
    report: str | None = REPORT,
    as_json: bool = EVENTS,
    quiet: bool = QUIET,
    address: str | None = ADDRESS,
) -> Transcode:
    return Transcode(spec=spec, address=address, report=report, as_json=as_json, quiet=quiet)


@dataclass(frozen=True, kw_only=True)
class Resume(Watched):
    """A parsed ``resume`` command."""

    work: str

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Continue the job at a work location as ``transcode`` would; return the exit code."""
        watched = {each.name: getattr(self, each.name) for each in fields(Watched)}
        command = Transcode(spec=services.unfinished_spec(self.work), **watched)
        return command.run(services, stdout, stderr)


def _resume(
    work: Annotated[
        str,
        typer.Argument(
            metavar="WORK|OUTPUT",
            help="The job's output, or the work location that the job printed: a folder or a URL.",
        ),
    ],
    *,
    report: str | None = REPORT,
    as_json: bool = EVENTS,
    quiet: bool = QUIET,
    address: str | None = ADDRESS,
) -> Resume:
    checked = parse_path("WORK", work)
    return Resume(work=checked, address=address, report=report, as_json=as_json, quiet=quiet)


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
    "resume": (_resume, ["resume film.mp4", "resume .film.mp4.codecfleet"]),
}
