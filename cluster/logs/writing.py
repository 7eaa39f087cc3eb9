"""Writes log entries. They go through Python's ``logging``, as records of the logger ``codecfleet``.

So a program that uses codecfleet may take them with handlers of its own: a record's message is the line, and its
``entry`` the whole ``LogEntry``. Without any handler nothing is written.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from .actions import LogAction
from .entry import NO_IDS, LogEntry, LogIds, LogStyle
from .quota import Quota

LOGGER: Final = logging.getLogger("codecfleet")
LOGGER.addHandler(logging.NullHandler())


def log(action: LogAction, line: str, ids: LogIds = NO_IDS, error: BaseException | None = None) -> None:
    """Write an entry, where entries are written; ``error`` is a defect's. Thread-safe; never raises."""
    if LOGGER.isEnabledFor(action.level):
        entry = LogEntry.of(action, line, ids, error)
        LOGGER.log(action.level, "%s", entry.line, extra={"entry": entry})


class EntryHandler(logging.Handler):
    """Writes entries with ``write``, at a bounded rate of each level, so that a storm of one hides no other.

    Args:
        write: takes each entry's text, with the line's end; what it raises is dropped.
        style: how entries are written.
        service: what kind of process this is.
        clock: monotonic seconds.
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
        """Write a record's entry; called with the handler's lock held."""
        entry = getattr(record, "entry", None)
        if not isinstance(entry, LogEntry):
            return
        quota = self._quotas.setdefault(record.levelno, Quota())
        if not quota.takes(self._clock()):
            return
        if count := quota.told():
            self._put(
                LogEntry.of(LogAction.LOG_SUPPRESSED, f"{count} entries before this were left out"), record.created
            )
        self._put(entry, record.created)

    def _put(self, entry: LogEntry, at_s: float) -> None:
        text = entry.written(self._style, at_s=at_s, service=self._service, process=os.getpid())
        # A signal's handler may write while the thread that it interrupts does.
        with suppress(OSError, ValueError, RuntimeError):
            self._write(f"{text}\n")


def is_logged() -> bool:
    """Return whether this process writes its entries."""
    return any(isinstance(each, EntryHandler) for each in LOGGER.handlers)


def begin_log(handler: EntryHandler) -> None:
    """Have this process's entries written by ``handler`` from here on, and by none of its parents'."""
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


@contextmanager
def logged_to(stream: TextIO, style: LogStyle, service: str) -> Iterator[None]:
    """Write this process's entries to a stream, each at once, as long as the block runs."""

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
