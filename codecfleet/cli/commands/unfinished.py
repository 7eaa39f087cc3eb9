"""The commands ``resume`` and ``jobs``, about work that is not finished."""

from dataclasses import dataclass, fields
from typing import Annotated, Final, TextIO

import typer

from ...errors import UsageError
from ...jobs.request.values import parse_choice, parse_path
from ..params import JSON, flag
from ..question import Question
from ..services import Commands, Services
from .submit import JOB_SERVER, Following
from .transcode import ADDRESS, EVENTS, QUIET, REPORT, Transcode, Watched

_ACTIONS: Final = ("list", "show", "clean", "ray", "logs", "stop")


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
            metavar="WORK|OUTPUT", help="The job's output, or the work location that it printed: a folder or a URL."
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


def _jobs(
    action: Annotated[
        str,
        typer.Argument(
            metavar="list|show|clean|ray|logs|stop",
            help="list, show or clean (remove) unfinished work in PLACE. For a cluster's Ray jobs: ray lists them, "
            "logs shows the output of one, stop cancels it.",
            show_default=False,
        ),
    ],
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE|JOB",
            help="A folder or URL with unfinished work, one work location, or an output. For logs and stop: a Ray "
            "job's name. Default: the current folder.",
            show_default=False,
        ),
    ] = ".",
    *,
    as_json: bool = JSON,
    address: str | None = JOB_SERVER,
    follow: bool = flag("--follow", "With logs: follow the job to its end, and exit with its exit code."),
) -> Question | Following:
    chosen, checked = parse_choice("ACTION", action, choices=_ACTIONS), parse_path("PLACE", place)
    if chosen in ("logs", "stop") and checked == ".":
        raise UsageError(f"jobs {chosen} needs a job's name", "`codecfleet jobs ray` lists them.")
    if follow and (chosen != "logs" or as_json):
        raise UsageError("--follow needs logs, and excludes --json", "See codecfleet jobs --help.")
    if follow:
        return Following(job_id=checked, address=address)
    if chosen in ("ray", "logs", "stop"):
        return Question(ask=lambda services, _progress: services.ray_jobs(chosen, checked, address), as_json=as_json)
    if address is not None:
        message = f"jobs {chosen} takes no --address: it applies to unfinished work in PLACE"
        raise UsageError(message, "`codecfleet jobs ray --address URL` lists a cluster's Ray jobs.")
    return Question(ask=lambda services, _progress: services.jobs(chosen, checked), as_json=as_json)


COMMANDS: Final[Commands] = {
    "resume": (_resume, ["resume film.mp4", "resume .film.mp4.codecfleet"]),
    "jobs": (
        _jobs,
        [
            "jobs list films",
            "jobs show films/.film.mp4.codecfleet",
            "jobs clean films",
            "jobs ray --address http://head:8265",
            "jobs logs codecfleet-0123456789ab --follow",
        ],
    ),
}
