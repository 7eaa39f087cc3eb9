"""The program's standard streams, made safe: none is missing, and a log that cannot be written stops nothing."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Final

from ..errors import StorageFailed, redacted

_LAST_STANDARD: Final = 2


class ResultStream(io.TextIOWrapper):
    """Stdout: an error is a ``StorageFailed`` with the reason, except ``BrokenPipeError``, which stays what it is."""

    def write(self, text: str) -> int:
        """Write, as any text stream, with addresses redacted."""
        with _mapped():
            return super().write(redacted(text))

    def flush(self) -> None:
        """Flush, as any text stream."""
        with _mapped():
            super().flush()


class LogStream(io.TextIOWrapper):
    """Stderr: what cannot be written (full disk, closed terminal, reader gone) is dropped without an error."""

    def write(self, text: str) -> int:
        """Write what can be written, with addresses redacted."""
        with contextlib.suppress(OSError):
            super().write(redacted(text))
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
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
    """Replace ``sys.stdout`` and ``sys.stderr`` by safe ones; file names that are not valid text are escaped."""
    _fill_closed()
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    for name, descriptor, kind in (("stdout", 1, ResultStream), ("stderr", 2, LogStream)):
        raw = os.fdopen(descriptor, "wb", closefd=False)
        setattr(sys, name, kind(raw, encoding=encoding, errors="backslashreplace", line_buffering=True))


def _fill_closed() -> None:
    """Open the null device for each standard descriptor that is closed: the next file opened would get its number."""
    descriptor = 0
    while descriptor <= _LAST_STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(descriptor, descriptor <= _LAST_STANDARD)
    os.close(descriptor)


def drop_unwritten() -> None:
    """Drop what stdout buffers for a closed pipe or a full disk, so that the interpreter exits without an error."""
    try:
        sys.stdout.flush()
    except (OSError, StorageFailed):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
