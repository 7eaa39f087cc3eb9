"""Writes log entries through Python's ``logging``, as records of the logger ``codecfleet``.

A program may write the records with its own handlers: a record's message is the entry's line, and its attribute
``entry`` is the ``LogEntry``. Without a handler, nothing is written.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TextIO

from .actions import LogAction
from .entry import NO_IDS, LogEntry, LogIds, LogStyle

LOGGER: Final = logging.getLogger("codecfleet")
LOGGER.addHandler(logging.NullHandler())


def log(action: LogAction, line: str, ids: LogIds = NO_IDS, error: BaseException | None = None) -> None:
    """Write an entry, if this process writes entries; ``error`` is a defect to report. Thread-safe; never raises."""
    if LOGGER.isEnabledFor(action.level):
        entry = LogEntry.of(action, line, ids, error)
        LOGGER.log(action.level, "%s", entry.line, extra={"entry": entry})


@dataclass(slots=True)
class Quota:
    """Limits the rate of entries of one level; ``now_s`` is on a monotonic clock."""

    at_once: int = 1000  #: entries allowed at once; a large cluster writes this many when it starts
    per_s: int = 50
    suppressed: int = 0  #: entries suppressed since the last entry was written
    _room: float = -1.0
    _at_s: float = 0.0

    def takes(self, now_s: float) -> bool:
        """Return whether to write another entry; otherwise, the entry is counted in ``suppressed``."""
        grown = float(self.at_once) if self._room < 0 else self._room + (now_s - self._at_s) * self.per_s
        self._room, self._at_s = min(float(self.at_once), grown), now_s
        if self._room < 1:
            self.suppressed += 1
            return False
        self._room -= 1
        return True


class EntryHandler(logging.Handler):
    """Passes entries, with line ends, to ``write``, and ignores errors of ``write``.

    Each level has its own rate limit. ``service`` is the kind of process.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        style: LogStyle,
        service: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._write = write
        self._style = style
        self._service = service
        self._clock = clock
        self._quotas: dict[int, Quota] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's entry; ``logging`` calls this while it holds the handler's lock."""
        entry = getattr(record, "entry", None)
        if not isinstance(entry, LogEntry):
            return
        quota = self._quotas.setdefault(record.levelno, Quota())
        if not quota.takes(self._clock()):
            return
        if quota.suppressed:
            line = f"{quota.suppressed} entries before this were left out"
            self._put(LogEntry.of(LogAction.LOG_SUPPRESSED, line), record.created)
            quota.suppressed = 0
        self._put(entry, record.created)

    def _put(self, entry: LogEntry, at_s: float) -> None:
        text = entry.written(self._style, at_s=at_s, service=self._service, process=os.getpid())
        # A RuntimeError comes from a signal handler that logs while the interrupted thread is writing.
        with suppress(OSError, ValueError, RuntimeError):
            self._write(f"{text}\n")


def is_logged() -> bool:
    """Return whether this process writes entries."""
    return any(isinstance(each, EntryHandler) for each in LOGGER.handlers)


def begin_log(handler: EntryHandler) -> None:
    """Write this process's entries with ``handler``, and not with the handlers of parent loggers."""
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


@contextmanager
def logged_to(stream: TextIO, style: LogStyle, service: str) -> Iterator[None]:
    """Write this process's entries to a stream, each immediately, while the block runs."""

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    handler = EntryHandler(write, style, service)
    before = LOGGER.level, LOGGER.propagate
    begin_log(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]
