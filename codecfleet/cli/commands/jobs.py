"""The command ``jobs``, for jobs of a queue, jobs of a cluster, and unfinished work."""

from typing import Annotated, Final

import typer

from ...errors import UsageError
from ...jobs.request.values import parse_choice, parse_path
from ..params import JSON, flag
from ..question import Question
from ..services import Commands
from .submit import JOB_SERVER, QUEUE, Following, JobsPlace, parse_priority

_OF_WORK: Final = ("unfinished", "clean")
_OF_ALL_JOBS: Final = ("list",)
_OF_A_QUEUE: Final = ("retry", "priority")
_ACTIONS: Final = (*_OF_ALL_JOBS, "show", "logs", "cancel", *_OF_A_QUEUE, *_OF_WORK)


def _jobs(
    action: Annotated[
        str,
        typer.Argument(
            metavar="list|show|logs|cancel|retry|priority|unfinished|clean",
            help="list the jobs; show, cancel or retry JOB; print its output (logs), or give it another priority. For "
            "work of commands that did not finish: list it (unfinished), or remove it (clean).",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|PLACE",
            help="The job's id. For unfinished and clean: a folder or URL, one work location, or an output. Default: "
            "the current folder.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Argument(metavar="N", help="For priority: a whole number; higher numbers run first.", show_default=False),
    ] = None,
    *,
    as_json: bool = JSON,
    queue: str | None = QUEUE,
    address: str | None = JOB_SERVER,
    follow: bool = flag("--follow", "With logs: follow the job to its end, and exit with its exit code."),
) -> Question | Following:
    chosen = parse_choice("ACTION", action, choices=_ACTIONS)
    option = JobsPlace(address, queue).option
    _check(chosen, name, priority, option)
    if follow and (chosen != "logs" or as_json):
        raise UsageError("--follow applies only to `jobs logs` without --json", "See codecfleet jobs --help.")
    if chosen in _OF_WORK:
        if queue is not None or address is not None:
            message = f"jobs {chosen} takes no --queue or --address: it applies to unfinished work in PLACE"
            raise UsageError(message, f"`codecfleet jobs list{option}` lists the jobs of a queue or a cluster.")
        place = parse_path("PLACE", "." if name is None else name)
        return Question(ask=lambda services, _progress: services.work(chosen, place), as_json=as_json)
    jobs = JobsPlace.of(queue, address)
    job_id = "" if name is None else parse_path("JOB", name)
    if follow:
        return Following(job_id=job_id, place=jobs)
    if (server := jobs.job_server) is not None:
        if chosen in _OF_A_QUEUE:
            message = f"jobs {chosen} applies to a queue, and {server} is a cluster"
            raise UsageError(message, "Submit a Ray job again, or name a queue with --queue.")
        return Question(ask=lambda services, _progress: services.ray_jobs(chosen, job_id, server), as_json=as_json)
    number = None if priority is None else parse_priority("N", priority)
    return Question(
        ask=lambda services, _progress: services.queue_jobs(chosen, job_id, number, jobs.queue), as_json=as_json
    )


def _check(action: str, name: str | None, priority: str | None, option: str) -> None:
    if name is None and action not in (*_OF_WORK, *_OF_ALL_JOBS):
        raise UsageError(f"jobs {action} needs a job's id", f"`codecfleet jobs list{option}` lists them.")
    if name is not None and action in _OF_ALL_JOBS:
        step = f"`codecfleet jobs show {name}{option}` shows one job, "
        raise UsageError(f"jobs {action} takes no name", f"{step}`codecfleet jobs unfinished {name}` work in a folder.")
    if (priority is None) == (action == "priority"):
        raise UsageError(
            "jobs priority needs a number N, and no other action takes one", "Write `codecfleet jobs priority JOB N`."
        )


COMMANDS: Final[Commands] = {
    "jobs": (
        _jobs,
        [
            "jobs list",
            "jobs logs job-0123456789ab --follow",
            "jobs list --address http://head:8265",
            "jobs unfinished films",
            "jobs clean films",
        ],
    ),
}
