"""How a command fails: one line on stderr, and an exit code."""

import errno
import os
import re
from dataclasses import dataclass
from typing import Final, TextIO

from ..errors import Cancelled, CodecfleetError, one_line, redacted

PAGE: Final = re.compile(r"\bdocs/([a-z/-]+)\.md\b")
READER_GONE_CODE: Final = 141
"""What a shell reports for a program that SIGPIPE ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What to print, and the exit code. ``error`` is the exception's class name."""

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


def page_commands(text: str) -> str:
    """Return a text whose pages of docs/ are named as the command that shows them, wherever the program lies."""
    return PAGE.sub(r"`codecfleet docs \1`", text)


def failure_of(error: BaseException, interrupted_code: int | None = None, *, interrupted_step: str = "") -> Failure:
    """Return what to print about ``error``.

    Args:
        error: what ended the command.
        interrupted_code: the exit code of the signal that stopped the command, if one did; later errors do not count.
        interrupted_step: what the user may do after an interruption.
    """
    from asyncio import CancelledError

    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    interrupted = isinstance(cause, Cancelled | CancelledError | KeyboardInterrupt)
    if interrupted or interrupted_code is not None:
        code = Cancelled.exit_code if interrupted_code is None else interrupted_code
        return Failure("Cancelled", "interrupted", interrupted_step, code)
    if isinstance(cause, CodecfleetError):
        return Failure(type(cause).__name__, cause.message, page_commands(cause.next_step), cause.exit_code)
    name = type(cause).__name__
    if _is_limit(cause):
        step = (
            "Free memory, or raise the limit of this program: ulimit -v, ulimit -u, its container's or its service's."
        )
        return Failure(name, "no memory, or no thread, was left for this program", step, CodecfleetError.exit_code)
    step = "This is a defect in codecfleet; run again with CODECFLEET_DEBUG=1 to see where it happened."
    message = f"unexpected {name}: {cause}" if str(cause) else f"unexpected {name}"
    return Failure(name, message, step, CodecfleetError.exit_code)


def _is_limit(error: BaseException) -> bool:
    """Return whether this process may have no more memory or threads."""
    is_refused = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, MemoryError) or is_refused or "start new thread" in str(error)


def print_failure(failure: Failure, error: BaseException, stderr: TextIO) -> None:
    """Print the failure on stderr, after the traceback if the environment asks for one. A closed stderr is ignored."""
    from ..cluster.fleet_variables import shows_tracebacks

    try:
        if shows_tracebacks(os.environ):
            import traceback

            stderr.write(redacted("".join(traceback.format_exception(error))))
        print(failure.line, file=stderr, flush=True)
    except OSError:
        return
