"""The one way in which a benchmark fails."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["CommandFailed", "command_failed"]


class CommandFailed(Exception):
    """A command that is compared, or that compares, did not do its work."""


def command_failed(command: Sequence[str], code: int, errors: str) -> CommandFailed:
    """Return the error of a command that ended with a status: the end of what it said, and how it was called."""
    last = " | ".join(errors.strip().splitlines()[-5:])
    return CommandFailed(f"{Path(command[0]).name} ended with status {code}: {last}\n  {' '.join(command)}")
