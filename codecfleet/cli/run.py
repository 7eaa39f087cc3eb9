"""A ``transcode`` command, run: the job, a view on it, and its report."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..actors.media.whole_file import write_whole
from ..console.live import JsonView, PlainView, RichView, View
from ..console.output import Output, ReaderGone, is_terminal, json_line
from ..errors import OutputUnwritable, StorageFailed, UsageError
from ..jobs.report.events import Failed
from ..jobs.report.report import Report
from ..jobs.request.spec import TranscodeSpec
from .failures import READER_GONE_CODE, Failure, failure_of, tell
from .interrupts import Interrupts, last_acts
from .services import JobLike, Services

__all__ = ["Transcode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcode:
    """A ``transcode`` command, parsed and sound."""

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
        with Interrupts(services.exit_now, last_acts) as interrupts:
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
    """Return the way of looking that the options and the terminal call for."""
    output = Output(stdout)
    if request.as_json:
        return JsonView(output)
    if request.quiet:
        return View()
    if is_terminal(stderr):
        return RichView(output, stderr)
    return PlainView(output, Output(stderr))


class _Run:
    """One job from the start of its fleet to the end of it, and what a signal does to it."""

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
        """Run the job to its end and show it.

        Raises:
            CodecfleetError: the job failed or was cancelled.
            ReaderGone: nobody reads stdout; the job was cancelled.
        """
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
            self._interrupts.listen()  # Ray takes SIGTERM for itself when it starts, which may be any time
            self._job_name = event.job
            self.view.show(event)
        return await job

    def _finish(self, report: Report) -> None:
        # Before the fleet closes, so that nobody waits for Ray's shutdown to read the proof.
        self.published = True
        self._interrupts.published()
        if self._request.report_path is not None:
            write_report(Path(self._request.report_path), report)
        self.view.finish(report, self._request.report_path)

    def cancel(self) -> None:
        """Cancel the job, or its start; runs in the event loop, once."""
        self.view.note("cancelling; press Ctrl-C again to stop at once")
        if self._job is not None:
            self._stopping = asyncio.ensure_future(self._job.cancel())
        elif self._task is not None:
            self._task.cancel()

    def failed(self, error: BaseException, stdout: TextIO, stderr: TextIO) -> int:
        """Tell how the job failed, and return the exit code."""
        step = "Nothing was published; run the same command to start again."
        failure = failure_of(error, self._interrupts.exit_code, interrupted_step=step)
        if self._request.as_json:
            self._print_failed(failure, Output(stdout))
        tell(failure, error, stderr)
        return failure.exit_code

    def _print_failed(self, failure: Failure, output: Output) -> None:
        event = Failed(
            job=self._job_name,
            at_s=round(time.monotonic() - self._started_s, 3),
            error=failure.error,
            message=failure.message,
            next_step=failure.next_step,
            exit_code=failure.exit_code,
        )
        try:
            output.line(json_line(event.to_json()))
        except ReaderGone:
            return


def check_report_path(request: Transcode) -> None:
    """Refuse a report that could not be written after hours of work, or that would destroy what it reports on.

    Raises:
        UsageError: it has the input's or the output's name.
        OutputUnwritable: its folder is missing or closed to us, or it is a folder itself.
    """
    if request.report_path is None:
        return
    path = Path(request.report_path)
    for option, other in (("INPUT", request.spec.source), ("OUTPUT", request.spec.output)):
        if _same_file(path, Path(other)):
            message = f"--report {path} is the same file as {option}"
            raise UsageError(message, "Give the report a name of its own.")
    if path.is_dir():
        message = f"--report {path} is a folder"
        raise OutputUnwritable(message, "Name a file in it.")
    if not path.parent.is_dir():
        message = f"--report {path}: there is no folder {path.parent}"
        raise OutputUnwritable(message, "Create it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        message = f"--report {path}: the folder {path.parent} is read-only"
        raise OutputUnwritable(message, "Choose another folder.")


def _same_file(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def write_report(path: Path, report: Report) -> None:
    """Write the report as JSON; the file appears complete or not at all, and replaces an older one.

    Raises:
        StorageFailed: it could not be written; the output itself is in its place.
    """
    try:
        write_whole(path, f"{report.model_dump_json(indent=2)}\n".encode())
    except OSError as error:
        message = f"the output is complete, but its report {path} could not be written: {error.strerror}"
        raise StorageFailed(message, "Free some space, or name another place.") from error
