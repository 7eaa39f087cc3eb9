"""Reports the failure of a command by one line on stderr and an exit code."""

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from ..console.output import ReaderGone
from ..errors import Cancelled, CodecfleetError, Retry, one_line, redacted
from .driver_report import tell_driver
from .interrupts import Interrupts
from .services import Services

PAGE: Final = re.compile(r"\bdocs/([a-z/-]+)\.md\b")
READER_GONE_CODE: Final = 141
"""The exit code in a shell for a program that SIGPIPE ended."""
_LIMIT_STEP: Final = (
    "Free memory, or raise this program's limit: ulimit -v, ulimit -u, or the limit of its container or service."
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The lines to print about a failure, and the exit code."""

    error: str  #: the name of the exception's class
    message: str
    next_step: str
    exit_code: int

    @property
    def line(self) -> str:
        """The line that is printed for the user."""
        parts = [part.rstrip() for part in (self.message, self.next_step) if part.strip()]
        sentences = [part if part.endswith((".", "?", "!")) else f"{part}." for part in parts]
        return f"codecfleet: error: {one_line(' '.join(sentences))}"


def failure_of(error: BaseException, interrupted_code: int | None = None, *, interrupted_step: str = "") -> Failure:
    """Return the report of the error that ended a command.

    If a signal stopped the command, ``interrupted_code`` is the exit code for that signal. Then the error is ignored,
    and ``interrupted_step`` is the next step.
    """
    from asyncio import CancelledError

    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    interrupted = isinstance(cause, Cancelled | CancelledError | KeyboardInterrupt)
    if interrupted or interrupted_code is not None:
        code = Cancelled.exit_code if interrupted_code is None else interrupted_code
        return Failure("Cancelled", "interrupted", interrupted_step, code)
    name = type(cause).__name__
    if isinstance(cause, CodecfleetError):
        # The installed package has these pages, but no folder docs/.
        step = PAGE.sub(r"`codecfleet docs \1`", cause.next_step)
        return Failure(name, cause.message, step, cause.exit_code)
    message, step = "this program could get no more memory or threads", _LIMIT_STEP
    if not _is_limit(cause):
        message = f"unexpected {name}: {cause}" if str(cause) else f"unexpected {name}"
        step = "This is a defect in codecfleet; run again with CODECFLEET_DEBUG=1 to see where it happened."
    return Failure(name, message, step, CodecfleetError.exit_code)


def _is_limit(error: BaseException) -> bool:
    is_refused = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, MemoryError) or is_refused or "start new thread" in str(error)


def print_failure(failure: Failure, error: BaseException, stderr: TextIO) -> int:
    """Print the failure on stderr, after the traceback if the environment requests one; return the exit code.

    A closed stderr is ignored.
    """
    from ..cluster.fleet_variables import shows_tracebacks

    retry = error.retry if isinstance(error, CodecfleetError) else Retry.NEVER
    told = {"error": failure.error, "message": failure.message, "next_step": failure.next_step}
    tell_driver(**told, retry=retry.value)
    try:
        if shows_tracebacks(os.environ):
            import traceback

            stderr.write(redacted("".join(traceback.format_exception(error))))
        print(failure.line, file=stderr, flush=True)
    except OSError:
        pass
    return failure.exit_code


def interruptible(services: Services, stderr: TextIO, call: Callable[[Interrupts], int]) -> int:
    """Run ``call``, which a signal may interrupt, and return the exit code.

    If the call fails, print the error and return the exit code of the error.
    """
    with Interrupts(services.exit_now) as interrupts:
        interrupts.attach_here()
        try:
            return call(interrupts)
        except ReaderGone:
            return READER_GONE_CODE
        except BaseException as error:  # noqa: BLE001 - outermost level: every error becomes a line and an exit code
            failure = failure_of(error, interrupts.exit_code, interrupted_step=interrupts.next_step)
            return print_failure(failure, error, stderr)
