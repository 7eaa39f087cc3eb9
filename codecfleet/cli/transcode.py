"""The command ``transcode``: its options, the job with a view of it, and its report."""

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TextIO

from ..actors.media.whole_file import write_whole
from ..console.live import JsonView, PlainView, RichView, View
from ..console.output import Output, ReaderGone, is_terminal, json_line
from ..errors import OutputUnwritable, StorageFailed, UsageError
from ..jobs.report.events import Failed
from ..jobs.report.report import Report
from ..jobs.request.parts import RULES, RUN
from ..jobs.request.spec import TranscodeSpec
from .failures import READER_GONE_CODE, failure_of, print_failure
from .interrupts import Interrupts
from .params import address_of, flag, named, with_spec_options
from .services import Commands, JobLike, Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcode:
    """A parsed and checked ``transcode`` command."""

    spec: TranscodeSpec
    address: str | None
    report_path: str | None
    as_json: bool
    quiet: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run the job, show it, print its proof, and return the exit code.

        Raises:
            UsageError: the report would overwrite the input or the output.
            OutputUnwritable: the report could not be written where it is wanted.
        """
        check_report_path(self)
        with Interrupts(services.exit_now) as interrupts:
            run = _Run(self, services, make_view(self, stdout, stderr), interrupts)
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
        return JsonView(output)
    if request.quiet:
        return View()
    if is_terminal(stderr):
        return RichView(output, stderr)
    return PlainView(output, Output(stderr))


class _Run:
    """One job from the start of its fleet to its end."""

    def __init__(self, request: Transcode, services: Services, view: View, interrupts: Interrupts) -> None:
        self.view = view
        self.published = False
        self._request = request
        self._services = services
        self._interrupts = interrupts
        self._started_s = time.monotonic()
        self._task: asyncio.Task[object] | None = None
        self._job: JobLike | None = None
        self._job_name = ""
        self._stopping: asyncio.Future[None] | None = None

    async def drive(self) -> None:
        self._task = asyncio.current_task()
        self._interrupts.attach(self.cancel)
        spec = self._request.spec
        async with self._services.open_fleet(self._request.address, spec.workers) as fleet:
            self._job = await fleet.transcode(spec)
            try:
                report = await self._follow(self._job)
            except ReaderGone:
                await self._job.cancel()
                raise
            finally:
                if self._stopping is not None:
                    await self._stopping
            self._finish(report)

    async def _follow(self, job: JobLike) -> Report:
        async for event in job.events():
            self._interrupts.listen()  # Ray installs its own SIGTERM handler when it starts
            self._job_name = event.job
            self.view.show(event)
        return await job

    def _finish(self, report: Report) -> None:
        # Before the fleet closes: the proof need not wait for Ray's shutdown.
        self.published = True
        self._interrupts.published()
        if self._request.report_path is not None:
            write_report(Path(self._request.report_path), report)
        self.view.finish(report, self._request.report_path)

    def cancel(self) -> None:
        """Cancel the job, or its start; in the event loop."""
        self.view.note("cancelling; press Ctrl-C again to stop at once")
        if self._job is not None:
            self._stopping = asyncio.ensure_future(self._job.cancel())
        elif self._task is not None:
            self._task.cancel()

    def failed(self, error: BaseException, stdout: TextIO, stderr: TextIO) -> int:
        step = "Nothing was published; run the same command to start again."
        failure = failure_of(error, self._interrupts.exit_code, interrupted_step=step)
        event = Failed(
            job=self._job_name,
            at_s=round(time.monotonic() - self._started_s, 3),
            error=failure.error,
            message=failure.message,
            next_step=failure.next_step,
            exit_code=failure.exit_code,
        )
        if self._request.as_json:
            with contextlib.suppress(ReaderGone):
                Output(stdout).line(json_line(event.to_json()))
        print_failure(failure, error, stderr)
        return failure.exit_code


def check_report_path(request: Transcode) -> None:
    """Check before hours of work that the report can be written, over neither the input nor the output.

    Raises:
        UsageError: it is the input or the output.
        OutputUnwritable: it is a folder, or its folder is missing or not writable.
    """
    if request.report_path is None:
        return
    path = Path(request.report_path)
    for option, other in (("INPUT", request.spec.source), ("OUTPUT", request.spec.output)):
        if _same_file(path, Path(other)):
            raise UsageError(f"--report {path} is the same file as {option}", "Give --report another name.")
    if path.is_dir():
        raise OutputUnwritable(f"--report {path} is a folder", "Give --report a file in it.")
    if not path.parent.is_dir():
        message = f"--report {path}: there is no folder {path.parent}"
        raise OutputUnwritable(message, f"Create it: mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        message = f"--report {path}: the folder {path.parent} is read-only"
        raise OutputUnwritable(message, "Give --report another folder.")


def _same_file(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def write_report(path: Path, report: Report) -> None:
    """Write the report as JSON, completely or not at all, over an older one.

    Raises:
        StorageFailed: it could not be written; the output is published all the same.
    """
    try:
        write_whole(path, f"{report.model_dump_json(indent=2)}\n".encode())
    except OSError as error:
        message = f"the output is complete, but its report {path} could not be written: {error.strerror}"
        raise StorageFailed(message, "Free some space, or give --report another folder.") from error


def _transcode(
    spec: TranscodeSpec,
    *,
    report: Annotated[
        str | None,
        named(
            "--report",
            "FILE.json",
            "Write the whole report here, completely or not at all; an older one is replaced. Default: none.",
            RULES,
        ),
    ] = None,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON event a line on stdout, for programs: docs/events.md.", RULES)
    ] = False,
    quiet: Annotated[bool, flag("--quiet", "Print nothing but an error; warnings are in the report.", RULES)] = False,
    address: Annotated[
        str | None,
        address_of(
            "Use this Ray cluster, host:port, or auto for the one on this machine: docs/fleet.md. Default: the "
            "environment's RAY_ADDRESS, else a private Ray.",
            RUN,
        ),
    ] = None,
) -> Transcode:
    if as_json and quiet:
        raise UsageError("--json and --quiet exclude each other", "Leave one of them out.")
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
