"""Writes lines to a stream, as text or as JSON."""

import contextlib
import json
import math
import os
from typing import Any, Final, Self, TextIO

from ..errors import StorageFailed, one_line, redacted

_COUNT_EVERY_FRAMES: Final = 10


class ReaderGone(Exception):
    """Stdout was closed, for example by ``| head``. The program then ends without a message."""


class Display:
    """The display of a running command, as a context manager. This base class shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Erase the live display. Idempotent."""


class Output:
    """A text stream that is written and flushed line by line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str) -> None:
        """Write one line, in which secrets in addresses are redacted.

        Raises ReaderGone: the other end of the pipe is closed; StorageFailed: the disk is full, or the terminal is
        closed.
        """
        try:
            print(redacted(text), file=self._stream, flush=True)
        except BrokenPipeError:
            raise ReaderGone from None

    def log(self, text: str) -> None:
        """Write one line of the program's log; ignore a closed pipe."""
        with contextlib.suppress(ReaderGone):
            self.line(f"codecfleet: {one_line(text)}")


def json_line(document: dict[str, Any]) -> str:
    """Return ``document`` as one line of strict, ASCII-only JSON."""
    return json.dumps(strict_json(document), allow_nan=False, separators=(",", ":"))


def strict_json(value: object) -> object:
    """Return ``value`` with NaN and infinities as None, tuples as lists, and secrets in addresses redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return value


class JsonLines:
    """Writes events as lines of JSON on stdout. A full disk is reported once on stderr, and raises nothing."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._is_full = False

    def write(self, document: dict[str, Any]) -> None:
        """Write an event. Raises ReaderGone if stdout was closed."""
        if self._is_full:
            return
        try:
            self._stdout.line(json_line(document))
        except StorageFailed as error:
            self._is_full = True
            self._stderr.log(f"warning: no more events are printed: {error.message}")


def is_terminal(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal on which lines can be redrawn."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class FrameCounter(Display):
    """Counts frames on one line of a terminal, and erases the line at the end; ``what`` is a word such as "compared".

    If ``stderr`` is no terminal, nothing is shown.
    """

    def __init__(self, stderr: TextIO, what: str) -> None:
        self._stderr = stderr if is_terminal(stderr) else None
        self._what = what
        self._shown_frames = 0

    def close(self) -> None:
        """Erase the line."""
        if self._shown_frames:
            self._write("")

    def show(self, frames: int) -> None:
        """Show the number after every tenth frame."""
        if frames - self._shown_frames >= _COUNT_EVERY_FRAMES:
            self._shown_frames = frames
            self._write(f"{frames} frames {self._what}")

    def _write(self, text: str) -> None:
        if self._stderr is not None:
            with contextlib.suppress(OSError):
                print(f"\r\x1b[K{text}", end="", file=self._stderr, flush=True)
