"""The command of a Ray job, and a package of this code for nodes that do not have it."""

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
MARK: Final = "codecfleet"  #: The key of the command in a job's metadata


def new_job_id() -> str:
    """Return a new job's name, which is known before the job is submitted."""
    return f"codecfleet-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command for a cluster; everyone who can connect to the cluster can see the command."""

    arguments: tuple[str, ...]  #: arguments for codecfleet, from the command's name on
    folder: str  #: the working directory, used if the node that runs the job has it
    python: str  #: the cluster's Python
    variables: Mapping[str, str] = field(default_factory=dict)  #: additional environment variables

    @property
    def shell_line(self) -> str:
        """The line that a shell on the cluster runs.

        Because of ``-P``, Python does not search the folder for modules: it may contain other code.
        """
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        program = [*(("env", *variables) if variables else ()), self.python, "-P", "-u", "-m", "codecfleet"]
        command = shlex.join([*program, *self.arguments])
        return f"cd {shlex.quote(self.folder)} 2>/dev/null; exec {command}"

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the job in the cluster's list of jobs."""
        return {MARK: shlex.join(self.arguments)}


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Raise UsageError if an address contains a secret; everyone who can connect to a cluster sees its commands."""
    if any(redacted(each) != each for each in arguments):
        message = "a password or a signature in an address would be shown in the cluster's list of jobs"
        raise UsageError(message, "Give the credentials to the cluster's nodes, and leave them out of the address.")


@contextmanager
def copied_package() -> Iterator[Path]:
    """Yield a folder ``codecfleet`` with this code and nothing else.

    Ray sends a folder again only if its content differs, so compiled files, which differ from run to run, are left out.
    A wheel would not do, because Ray identifies a wheel by its version, and would not send a changed checkout again.
    """
    with tempfile.TemporaryDirectory(prefix="codecfleet-") as folder:
        copy = Path(folder) / "codecfleet"
        # Links are followed, because in a checkout some folders are links.
        shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        yield copy
