"""What a Ray job is asked to run: a command of ours, on the cluster, as it was typed here."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...errors import UsageError, redacted

MARK: Final = "codecfleet"
"""The key of our jobs' metadata; its value is the command."""


def new_job_id() -> str:
    """Return a name for a job, which is known before anything is sent."""
    return f"codecfleet-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command for a cluster.

    Args:
        arguments: ours, from the command's name on.
        folder: the folder that relative names count from, where the node that runs the job has it.
        python: the cluster's Python.
        variables: of the environment that it has besides the cluster's; not secret, as the command is not.
    """

    arguments: tuple[str, ...]
    folder: str
    python: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def shell_line(self) -> str:
        """The line that a shell of the cluster runs.

        The folder is not searched for modules (``-P``): it may be a checkout of something else.
        """
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        program = [*(("env", *variables) if variables else ()), self.python, "-P", "-u", "-m", "codecfleet"]
        command = shlex.join([*program, *self.arguments])
        return f"cd {shlex.quote(self.folder)} 2>/dev/null; exec {command}"

    @property
    def metadata(self) -> dict[str, str]:
        """What the cluster's list of jobs says of it."""
        return {MARK: shlex.join(self.arguments)}


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Raise UsageError where an address has a secret: a cluster shows its jobs' commands to all who can reach it."""
    if any(redacted(each) != each for each in arguments):
        message = "a password or a signature in an address would be shown in the cluster's list of jobs"
        raise UsageError(message, "Give the cluster's nodes their credentials, and leave them out of the address.")
