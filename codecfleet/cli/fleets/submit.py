"""The command ``submit``: another command of ours as a Ray job."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ...console.output import Output
from ...errors import UsageError
from ..interrupts import Interrupts
from ..params import flag, named
from ..services import Commands, Services
from .following import Following, attach_step, interruptible

if TYPE_CHECKING:
    from ...cluster.submission.job_server import JobServer

_SUBMITTABLE: Final = ("transcode", "resume", "batch", "infer", "stills", "verify")

JobServerOption = Annotated[
    str | None,
    named(
        "--address",
        "URL",
        "The cluster's job server, at its dashboard's address: http://HEAD:8265. Default: the environment's "
        "RAY_API_SERVER_ADDRESS, else its RAY_ADDRESS.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A parsed ``submit`` command."""

    arguments: tuple[str, ...]
    address: str | None
    waits: bool
    ships: bool
    python: str

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Submit the command, follow it, and return its exit code; or print the job's name.

        Raises:
            UsageError: the command makes no sense; nothing was submitted.
        """
        from ...cluster.submission.entry import refuse_secrets

        refuse_secrets(self.arguments)
        checked = services.check(self.arguments)
        if isinstance(checked, int):
            return checked  # it asked for help
        return interruptible(
            services,
            stderr,
            lambda interrupts: self._submit(services.job_server(self.address), interrupts, stdout, stderr),
        )

    def _submit(self, server: "JobServer", interrupts: Interrupts, stdout: TextIO, stderr: TextIO) -> int:
        from ...cluster.submission.entry import Entry, new_job_id
        from ...cluster.submission.package import copied_package

        job_id = new_job_id()
        # An interruption from here on may come after the job has reached the cluster.
        interrupts.next_step = attach_step(job_id, server.address)
        with copied_package() if self.ships else nullcontext() as package:
            server.submit(job_id, Entry(self.arguments, str(Path.cwd()), self.python), package)
        if not self.waits:
            Output(stdout).line(job_id)
            return 0
        Output(stderr).line(f"codecfleet: job {job_id}. {interrupts.next_step}")
        return Following(job_id=job_id, address=server.address).follow(server, interrupts, stdout, stderr)


def _submit(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="A command with its arguments, as it would be typed on the cluster."),
    ],
    *,
    address: JobServerOption = None,
    no_wait: Annotated[bool, flag("--no-wait", "Print the job's name, and do not follow it.")] = False,
    installed: Annotated[
        bool, flag("--installed", "Use the codecfleet that the cluster's nodes have, instead of sending this one.")
    ] = False,
    python: Annotated[
        str | None, named("--python", "PROGRAM", "The Python of the cluster's nodes that has Ray. Default: python3.")
    ] = None,
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
