"""The command ``submit``: runs another command as a Ray job, and follows it to its end."""

import asyncio
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ...console.output import Output
from ...errors import UsageError
from ..failures import interruptible
from ..interrupts import Interrupts
from ..params import flag, named
from ..services import Commands, Services

if TYPE_CHECKING:
    from ...cluster.submission.entry import Entry
    from ...cluster.submission.job_server import JobServer
    from ...jobs.request.places import SentFiles

_SUBMITTABLE: Final = ("transcode", "resume", "batch", "infer", "stills", "verify")

JOB_SERVER = named(
    "--address",
    "URL",
    "The cluster's job server, which has the dashboard's address: http://HEAD:8265. Default: the environment's "
    "RAY_API_SERVER_ADDRESS, else its RAY_ADDRESS.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """``jobs logs --follow``: shows what a job prints to its end; an interruption does not end the job."""

    job_id: str
    address: str | None

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show what the job prints, and return its exit code."""
        return interruptible(
            services,
            stderr,
            lambda interrupts: follow(self.job_id, services.job_server(self.address), interrupts, stdout, stderr),
        )


def follow(job_id: str, server: "JobServer", interrupts: Interrupts, stdout: TextIO, stderr: TextIO) -> int:
    """Show what a job prints on stdout and stderr, as the command itself would, and return its exit code."""
    from ...cluster.submission.follow import Follower, exit_code_of
    from ...cluster.submission.job_server import JobPhase

    interrupts.next_step = attach_step(job_id, server.address)
    answers, remarks = Output(stdout), Output(stderr)
    show = Follower(server, lambda line, is_remark: (remarks if is_remark else answers).line(line))
    job = asyncio.run(show.follow(job_id))
    code = exit_code_of(job)
    if job.phase is JobPhase.STOPPED:
        remarks.line(f"codecfleet: error: job {job_id} was stopped")
    elif code and job.exit_code is None:
        remarks.line(f"codecfleet: error: Ray did not run job {job_id}: {job.message}")
    return code


def attach_step(job_id: str, address: str) -> str:
    """Return the commands that show or stop a job that is still running."""
    where = f"{job_id} --address {shlex.quote(address)}"
    stop = f"`codecfleet jobs stop {where}` ends it."
    return f"The job is still running: `codecfleet jobs logs {where} --follow` shows it, {stop}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A parsed ``submit`` command."""

    arguments: tuple[str, ...]
    address: str | None
    waits: bool
    ships: bool
    python: str

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Submit the command, follow it, and return its exit code; or print the job's name."""
        from ...actors.tracing import caller
        from ...cluster.submission.entry import Entry, refuse_secrets

        refuse_secrets(self.arguments)
        checked = services.check(self.arguments)
        if isinstance(checked, int):
            return checked  # it asked for help
        sent = _sent_files(self.arguments)
        refuse_secrets([*sent.specs.values(), *sent.presets.values()])
        entry = Entry(self.arguments, str(Path.cwd()), self.python, {**sent.variables, **caller(os.environ)})
        return interruptible(
            services,
            stderr,
            lambda interrupts: self._submit(services.job_server(self.address), entry, interrupts, stdout, stderr),
        )

    def _submit(
        self, server: "JobServer", entry: "Entry", interrupts: Interrupts, stdout: TextIO, stderr: TextIO
    ) -> int:
        from ...cluster.submission.entry import copied_package, new_job_id

        job_id = new_job_id()
        # An interruption from here on may come after the job has reached the cluster.
        interrupts.next_step = attach_step(job_id, server.address)
        with copied_package() if self.ships else nullcontext() as package:
            server.submit(job_id, entry, package)
        if not self.waits:
            Output(stdout).line(job_id)
            return 0
        Output(stderr).line(f"codecfleet: job {job_id}. {interrupts.next_step}")
        return follow(job_id, server, interrupts, stdout, stderr)


def _sent_files(arguments: Sequence[str]) -> "SentFiles":
    """Return the spec files and the user's own presets that a checked command uses."""
    from ...jobs.request.places import SentFiles, presets_folder
    from ...jobs.request.presets import find_presets

    presets = find_presets(presets_folder(os.environ))
    named = [presets[name] for name in _values_of("--preset", arguments) if name in presets]
    paths = [path for path in _values_of("--spec", arguments) if Path(path).is_file()]
    specs = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    return SentFiles(specs, {each.name: each.text for each in named if each.is_own})


def _values_of(option: str, arguments: Sequence[str]) -> Iterator[str]:
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if argument == option:
            yield following
        elif argument.startswith(f"{option}="):
            yield argument.partition("=")[2]


def _submit(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...", help="The command with its arguments, as you would type it on the cluster."
        ),
    ],
    *,
    address: str | None = JOB_SERVER,
    no_wait: bool = flag("--no-wait", "Print the job's name and exit; do not follow the job."),
    installed: bool = flag(
        "--installed", "Use the codecfleet that is installed on the nodes, instead of sending this one."
    ),
    python: str | None = named(
        "--python", "PROGRAM", "The Python program on the nodes in which Ray is installed. Default: python3."
    ),
) -> Submit:
    if command[0] not in _SUBMITTABLE:
        raise UsageError(f"{command[0]} cannot be submitted", f"What can: {', '.join(_SUBMITTABLE)}.")
    return Submit(
        arguments=tuple(command), address=address, waits=not no_wait, ships=not installed, python=python or "python3"
    )


COMMANDS: Final[Commands] = {
    "submit": (
        _submit,
        [
            "submit --address http://head:8265 transcode /films/film.mkv /films/film.mp4 --codec hevc",
            "submit --no-wait verify /films/film.mkv /films/film.mp4",
        ],
    ),
}
