"""The command of a Ray job: a codecfleet command as typed here, with this code for machines that lack it."""

import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...errors import UsageError, redacted

_PACKAGE: Final = Path(__file__).absolute().parents[2]
MARK: Final = "codecfleet"  #: The key of our jobs' metadata; its value is the command


def new_job_id() -> str:
    """Return a name for a job, which is known before anything is sent."""
    return f"codecfleet-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command for a cluster, which shows it to all who can reach it."""

    arguments: tuple[str, ...]  #: arguments of codecfleet, from the command's name on
    folder: str  #: for relative names, where the node that runs the job has it
    python: str  #: the cluster's
    variables: Mapping[str, str] = field(default_factory=dict)  #: environment variables, beside the cluster's

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
    """Raise UsageError if an address contains a secret: a cluster shows its jobs' commands to all who can reach it."""
    if any(redacted(each) != each for each in arguments):
        message = "a password or a signature in an address would be shown in the cluster's list of jobs"
        raise UsageError(message, "Give the cluster's nodes their credentials, and leave them out of the address.")


@contextmanager
def copied_package() -> Iterator[Path]:
    """Yield a folder ``codecfleet`` with this code and nothing else.

    Ray sends a folder once for each content: so no compiled files, which differ from run to run. A wheel it would name
    by its version, and not send the code of a changed checkout again.
    """
    with tempfile.TemporaryDirectory(prefix="codecfleet-") as folder:
        copy = Path(folder) / "codecfleet"
        # Links are followed: in a checkout our rooms are links.
        shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        yield copy
