"""The command ``submit``: puts another command into a queue, or runs it as a Ray job and follows the job to its end."""

import asyncio
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, TextIO

import typer

from ...console.output import Output
from ...errors import Cancelled, UsageError, WorkError, one_line
from ...jobs.request.values import parse_count, parse_time
from ..failures import interruptible
from ..interrupts import Interrupts
from ..params import flag, named, valued
from ..question import safe_line
from ..services import Commands, Services

if TYPE_CHECKING:
    from ...cluster.submission.entry import Entry
    from ...cluster.submission.job_server import JobServer
    from ...jobs.request.places import SentFiles

_SUBMITTABLE: Final = ("transcode", "resume", "batch", "infer", "ladder", "stills", "verify")

JOB_SERVER = named(
    "--address",
    "URL",
    "The address of a cluster's job server, the same as that of Ray's dashboard: http://HEAD:8265. Default: the "
    "environment's RAY_API_SERVER_ADDRESS, else its RAY_ADDRESS, else none, so that a queue is used.",
)
QUEUE = named(
    "--queue",
    "FILE|URL",
    "The queue: a file on a local disk, or a database such as postgresql://HOST/NAME. Default: the configuration's, "
    "else this user's on this machine: docs/queue.md.",
)


def parse_priority(name: str, text: str) -> int:
    """Parse a priority, which may be negative."""
    is_negative = text.startswith("-")
    return (-1 if is_negative else 1) * parse_count(name, text[is_negative:])


@dataclass(frozen=True, slots=True)
class JobsPlace:
    """The place of jobs: a cluster's job server or a queue."""

    job_server: str | None
    queue: str | None = None  #: None for this user's queue

    @classmethod
    def of(cls, queue: str | None, address: str | None, *, asks_cluster: bool = True) -> Self:
        """Return the place that a command names, or the default place. Raises UsageError if both options are given."""
        from ...cluster.submission.job_server import named_job_server
        from ...jobs.request.config import load_config

        if queue is not None and address is not None:
            raise UsageError("--queue and --address exclude each other", "Leave one of them out.")
        if queue is not None:
            return cls(None, queue)
        server = named_job_server(address) if asks_cluster else None
        return cls(server, None if server is not None else load_config().settings.queue)

    @property
    def option(self) -> str:
        """The option that names this place in another command; "" for this user's queue."""
        from ...cluster.queue.places import queue_option

        if self.job_server is not None:
            return f" --address {shlex.quote(self.job_server)}"
        return queue_option(self.queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A parsed ``jobs logs --follow``, which shows what a job prints until the job ends.

    An interruption does not end the job.
    """

    job_id: str
    place: JobsPlace

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show what the job prints, and return the job's exit code."""
        return interruptible(services, stderr, lambda interrupts: self._follow(services, interrupts, stdout, stderr))

    def _follow(self, services: Services, interrupts: Interrupts, stdout: TextIO, stderr: TextIO) -> int:
        if self.place.job_server is None:
            interrupts.next_step = attach_step(self.job_id, self.place)
            return asyncio.run(_follow_in_queue(self.job_id, self.place, services, stdout, stderr))
        return follow(self.job_id, services.job_server(self.place.job_server), interrupts, stdout, stderr)


async def _follow_in_queue(job_id: str, place: JobsPlace, services: Services, stdout: TextIO, stderr: TextIO) -> int:
    """Show what a queued job prints, and return its exit code: 130 if it was cancelled, 5 if it was parked."""
    from ...cluster.queue.values import QueueState

    answers, remarks = Output(stdout), Output(stderr)
    line = ""

    def show(text: str) -> None:
        nonlocal line
        *lines, line = (line + text).split("\n")
        for each in lines:
            (remarks if each.startswith("codecfleet: ") else answers).line(safe_line(each))

    async with services.open_queue(place.queue, makes=False) as queue:
        job = await queue.wait(job_id, on_output=show)
    if line:
        show("\n")
    if job.state is QueueState.CANCELLED:
        remarks.line(f"codecfleet: error: job {job_id} was cancelled")
        return Cancelled.exit_code
    if job.state is QueueState.PARKED:
        failure = f"job {job_id} is parked after {job.attempt} attempts: {job.message}."
        remarks.line(
            f"codecfleet: error: {one_line(failure)} `codecfleet jobs retry {job_id}{place.option}` tries again."
        )
        return WorkError.exit_code
    return job.exit_code or 0


def follow(job_id: str, server: "JobServer", interrupts: Interrupts, stdout: TextIO, stderr: TextIO) -> int:
    """Show what a job prints, on stdout and stderr as the command itself would; return the job's exit code."""
    from ...cluster.submission.follow import Follower, exit_code_of
    from ...cluster.submission.job_server import JobPhase

    interrupts.next_step = attach_step(job_id, JobsPlace(server.address))
    answers, remarks = Output(stdout), Output(stderr)
    show = Follower(server, lambda line, is_remark: (remarks if is_remark else answers).line(line))
    job = asyncio.run(show.follow(job_id))
    code = exit_code_of(job)
    if job.phase is JobPhase.STOPPED:
        remarks.line(f"codecfleet: error: job {job_id} was stopped")
    elif code and job.exit_code is None:
        remarks.line(f"codecfleet: error: Ray did not run job {job_id}: {job.message}")
    return code


def attach_step(job_id: str, place: JobsPlace) -> str:
    """Return the commands that show or cancel a job that has not ended."""
    where = f"{job_id}{place.option}"
    cancel = f"`codecfleet jobs cancel {where}` ends it."
    return f"The job goes on: `codecfleet jobs logs {where} --follow` shows it, {cancel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A parsed ``submit`` command for a cluster."""

    arguments: tuple[str, ...]
    address: str
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
            return checked  # the command asked for help
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
        # From here on, the job may already have reached the cluster when an interruption comes.
        interrupts.next_step = attach_step(job_id, JobsPlace(server.address))
        with copied_package() if self.ships else nullcontext() as package:
            server.submit(job_id, entry, package)
        if not self.waits:
            Output(stdout).line(job_id)
            return 0
        Output(stderr).line(f"codecfleet: job {job_id}. {interrupts.next_step}")
        return follow(job_id, server, interrupts, stdout, stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitToQueue:
    """A parsed ``submit`` command for a queue."""

    arguments: tuple[str, ...]
    place: JobsPlace
    job_id: str | None
    tenant: str | None
    priority: int
    due_in_s: float | None
    token: str | None

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Put the command into the queue, and print the job's id."""
        from ...actors.tracing import caller
        from ...cluster.queue.places import queue_file
        from ...cluster.queue.queue import new_job_id
        from ...cluster.submission.entry import refuse_secrets

        checked = services.check(self.arguments)
        if isinstance(checked, int):
            return checked  # the command asked for help
        sent = _sent_files(self.arguments)
        # other users may read a database, but a queue file belongs to this user
        if queue_file(self.place.queue) is None:
            refuse_secrets([*self.arguments, *sent.specs.values(), *sent.presets.values()])
        variables = {**sent.variables, **caller(os.environ)}
        job_id = new_job_id() if self.job_id is None else self.job_id

        def put(interrupts: Interrupts) -> int:
            show = f"`codecfleet jobs show {job_id}{self.place.option}`"
            interrupts.next_step = f"Job {job_id} may be in the queue: {show} tells whether it is."
            return asyncio.run(self._put(services, job_id, variables, stdout, stderr))

        return interruptible(services, stderr, put)

    async def _put(
        self, services: Services, job_id: str, variables: dict[str, str], stdout: TextIO, stderr: TextIO
    ) -> int:
        async with services.open_queue(self.place.queue, makes=True) as queue:
            job = await queue.submit(
                self.arguments,
                job_id=job_id,
                tenant=self.tenant,
                priority=self.priority,
                due_in_s=self.due_in_s,
                variables=variables,
                token=self.token,
            )
        Output(stdout).line(job.job_id)
        if not job.state.is_over:
            Output(stderr).line(f"codecfleet: {attach_step(job.job_id, self.place)}")
        return 0


def _sent_files(arguments: Sequence[str]) -> "SentFiles":
    """Return the spec files, a ladder's file, and the user's own presets that a checked command uses."""
    from ...jobs.ladder.spec import PRESET_SUFFIX
    from ...jobs.request.places import SentFiles, presets_folder
    from ...jobs.request.presets import find_presets

    presets = find_presets(presets_folder(os.environ))
    named = [presets[name] for name in _values_of("--preset", arguments) if name in presets]
    own_presets = (path for path in _values_of("--preset", arguments) if path.endswith(PRESET_SUFFIX))
    paths = [path for path in (*_values_of("--spec", arguments), *own_presets) if Path(path).is_file()]
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
            metavar="COMMAND...", help="The command with its arguments, as you would type it where it runs."
        ),
    ],
    *,
    queue: str | None = QUEUE,
    job_id: str | None = named(
        "--id", "NAME", "The job's id in the queue; another submission with this id is the same job. Default: a new id."
    ),
    priority: str | None = valued("--priority", "N", "A whole number; jobs with higher numbers run first. Default: 0."),
    due: str | None = valued(
        "--due",
        "TIME",
        "Time from now until the job should be done: 90s, 1:30:00. Of jobs with equal priority, the one due first runs "
        "first. Default: none.",
    ),
    tenant: str | None = named(
        "--tenant", "NAME", "Who submits the job to the queue. Default: the token's tenant, or this user."
    ),
    address: str | None = JOB_SERVER,
    no_wait: bool = flag("--no-wait", "Print the Ray job's name and exit; do not follow the job."),
    installed: bool = flag(
        "--installed", "Use the codecfleet that is installed on the nodes, instead of sending this one."
    ),
    python: str | None = named(
        "--python", "PROGRAM", "The Python program on the nodes in which Ray is installed. Default: python3."
    ),
) -> Submit | SubmitToQueue:
    if command[0] not in _SUBMITTABLE:
        raise UsageError(f"{command[0]} cannot be submitted", f"You can submit {', '.join(_SUBMITTABLE)}.")
    place = JobsPlace.of(queue, address)
    of_queue = {"--id": job_id, "--priority": priority, "--due": due, "--tenant": tenant}
    of_cluster = {"--no-wait": no_wait, "--installed": installed, "--python": python}
    wrong = next(
        (name for name, value in (of_cluster if place.job_server is None else of_queue).items() if value), None
    )
    if wrong is not None:
        other = "a queue" if place.job_server is None else "a cluster"
        raise UsageError(f"{wrong} does not apply to {other}", "Name the right place with --queue or --address.")
    if place.job_server is None:
        from ...cluster.queue.queue import checked_id
        from ...cluster.queue.tenants import read_token
        from ...jobs.request.config import load_config

        token_file = load_config().settings.queue_token
        return SubmitToQueue(
            arguments=tuple(command),
            place=place,
            job_id=None if job_id is None else checked_id(job_id),
            tenant=tenant,
            priority=0 if priority is None else parse_priority("--priority", priority),
            due_in_s=None if due is None else float(parse_time("--due", due)),
            token=None if token_file is None else read_token(token_file),
        )
    return Submit(
        arguments=tuple(command),
        address=place.job_server,
        waits=not no_wait,
        ships=not installed,
        python=python or "python3",
    )


COMMANDS: Final[Commands] = {
    "submit": (
        _submit,
        [
            "submit transcode film.mkv film.mp4 --codec hevc",
            "submit --queue postgresql://db/queue --priority 5 verify /films/film.mkv /films/film.mp4",
            "submit --address http://head:8265 transcode /films/film.mkv /films/film.mp4 --codec hevc",
        ],
    ),
}
