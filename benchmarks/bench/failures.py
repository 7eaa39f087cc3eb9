"""The error with which a benchmark fails."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["CommandFailed", "command_failed"]


class CommandFailed(Exception):
    """A command of a benchmark failed."""


def command_failed(command: Sequence[str], code: int, errors: str) -> CommandFailed:
    """Return the error of a command that ended with this status: the end of its output, and its command line."""
    last = " | ".join(errors.strip().splitlines()[-5:])
    return CommandFailed(f"{Path(command[0]).name} ended with status {code}: {last}\n  {' '.join(command)}")
