"""A command that follows a Ray job, and ends as that does."""

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ...console.output import Output, ReaderGone
from ..failures import READER_GONE_CODE, failure_of, print_failure
from ..interrupts import Interrupts
from ..services import Services

if TYPE_CHECKING:
    from ...cluster.submission.job_server import JobServer


def interruptible(services: Services, stderr: TextIO, call: Callable[[Interrupts], int]) -> int:
    """Return the exit code of ``call``, or print what ended it and return that ending's."""
    with Interrupts(services.exit_now) as interrupts:
        interrupts.attach_here()
        try:
            return call(interrupts)
        except ReaderGone:
            return READER_GONE_CODE
        except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
            failure = failure_of(error, interrupts.exit_code, interrupted_step=interrupts.next_step)
            print_failure(failure, error, stderr)
            return failure.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """``jobs logs --follow``, and the second half of ``submit``: what a job prints, to its end.

    An interruption ends this alone; the job goes on.
    """

    job_id: str
    address: str | None

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show what the job prints, and return its exit code."""
        return interruptible(
            services,
            stderr,
            lambda interrupts: self.follow(services.job_server(self.address), interrupts, stdout, stderr),
        )

    def follow(self, server: "JobServer", interrupts: Interrupts, stdout: TextIO, stderr: TextIO) -> int:
        """Follow it; its lines go to stdout and stderr as the command itself would have written them.

        Raises:
            CodecfleetError: it cannot be followed.
            ReaderGone: stdout was closed.
        """
        from ...cluster.submission.follow import Follower, exit_code_of
        from ...cluster.submission.job_server import JobPhase

        interrupts.next_step = attach_step(self.job_id, server.address)
        answers, remarks = Output(stdout), Output(stderr)
        show = Follower(server, lambda line, is_remark: (remarks if is_remark else answers).line(line))
        job = asyncio.run(show.follow(self.job_id))
        code = exit_code_of(job)
        if job.phase is JobPhase.STOPPED:
            remarks.line(f"codecfleet: error: job {self.job_id} was stopped")
        elif code and job.exit_code is None:
            remarks.line(f"codecfleet: error: Ray did not run job {self.job_id}: {job.message}")
        return code


def attach_step(job_id: str, address: str) -> str:
    """Return what to type to see more of a job that goes on."""
    where = f"{job_id} --address {shlex.quote(address)}"
    return f"The job goes on: `codecfleet jobs logs {where} --follow` shows it, `codecfleet jobs stop {where}` ends it."
