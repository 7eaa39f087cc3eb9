"""Makes the standard streams safe: no stream is missing, and a failure to write the log does not stop the program."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Final

from ..errors import StorageFailed, redacted

_LAST_STANDARD: Final = 2


class ResultStream(io.TextIOWrapper):
    """Stdout as a stream that raises BrokenPipeError unchanged, and other errors as ``StorageFailed``."""

    def write(self, text: str) -> int:
        """Write like any text stream, but redact secrets in addresses."""
        with _mapped():
            return super().write(redacted(text))

    def flush(self) -> None:
        """Flush like any text stream."""
        with _mapped():
            super().flush()


class LogStream(io.TextIOWrapper):
    """Stderr as a stream that silently drops text if the disk is full, or the terminal or pipe is closed."""

    def write(self, text: str) -> int:
        """Write with secrets in addresses redacted; if that fails, drop the text."""
        with contextlib.suppress(OSError):
            super().write(redacted(text))
        return len(text)

    def flush(self) -> None:
        """Flush; if that fails, drop the text."""
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"stdout cannot be written: {error.strerror}"
        raise StorageFailed(message, "Free some space, or send the output elsewhere.") from None


def install_streams() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr`` with safe streams, which escape file names that are not valid text."""
    _fill_closed()
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    for name, descriptor, kind in (("stdout", 1, ResultStream), ("stderr", 2, LogStream)):
        raw = os.fdopen(descriptor, "wb", closefd=False)
        setattr(sys, name, kind(raw, encoding=encoding, errors="backslashreplace", line_buffering=True))


def _fill_closed() -> None:
    """Open the null device on each closed standard descriptor; otherwise the next opened file would get its number."""
    descriptor = 0
    while descriptor <= _LAST_STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(descriptor, descriptor <= _LAST_STANDARD)
    os.close(descriptor)


def drop_unwritten() -> None:
    """Drop buffered output for a closed pipe or a full disk, so that the interpreter exits without an error."""
    try:
        sys.stdout.flush()
    except (OSError, StorageFailed):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
