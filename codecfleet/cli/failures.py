"""Every way a command can end badly, as one line and an exit code."""

import os
from dataclasses import dataclass
from typing import Final, TextIO

from ..console.text import one_line
from ..errors import Cancelled, CodecfleetError

__all__ = ["DEBUG_VARIABLE", "READER_GONE_CODE", "Failure", "failure_of", "tell"]

DEBUG_VARIABLE: Final = "CODECFLEET_DEBUG"
READER_GONE_CODE: Final = 141
"""What a shell reports for a program that SIGPIPE ended, which is what happened in all but name."""
_INTERRUPTED_CODE: Final = Cancelled.exit_code
_UNEXPECTED_CODE: Final = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """What to tell, and the exit code. ``error`` is the name of the exception's class."""

    error: str
    message: str
    next_step: str
    exit_code: int

    @property
    def line(self) -> str:
        """The line a person reads."""
        parts = [part.rstrip() for part in (self.message, self.next_step) if part.strip()]
        sentences = [part if part.endswith((".", "?", "!")) else f"{part}." for part in parts]
        return f"codecfleet: error: {one_line(' '.join(sentences))}"


def failure_of(error: BaseException, interrupted_code: int | None = None, *, interrupted_step: str = "") -> Failure:
    """Return what to tell about ``error``.

    Args:
        error: whatever ended the command.
        interrupted_code: the exit code of the signal that had stopped the command, if one had; whatever then broke
            on the way out is no news.
        interrupted_step: what to tell someone who interrupted the command.
    """
    from asyncio import CancelledError

    cause = _only_leaf(error)
    interrupted = isinstance(cause, Cancelled | CancelledError | KeyboardInterrupt)
    if interrupted or interrupted_code is not None:
        code = _INTERRUPTED_CODE if interrupted_code is None else interrupted_code
        return Failure("Cancelled", "interrupted", interrupted_step, code)
    if isinstance(cause, CodecfleetError):
        return Failure(type(cause).__name__, cause.message, cause.next_step, cause.exit_code)
    name = type(cause).__name__
    step = f"This is a defect in codecfleet; run again with {DEBUG_VARIABLE}=1 to see where it happened."
    return Failure(name, f"unexpected {name}: {cause}" if str(cause) else f"unexpected {name}", step, _UNEXPECTED_CODE)


def _only_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def tell(failure: Failure, error: BaseException, stderr: TextIO) -> None:
    """Print the failure on stderr; before it the traceback, if the environment asks for one. Never raises OSError."""
    try:
        if os.environ.get(DEBUG_VARIABLE, "0") not in {"", "0"}:
            import traceback

            traceback.print_exception(error, file=stderr)
        print(failure.line, file=stderr, flush=True)
    except OSError:
        return  # stderr is closed: the exit code still tells
