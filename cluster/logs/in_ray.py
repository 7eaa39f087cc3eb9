"""The logs of a cluster's supervisor and workers: files on their nodes, beside Ray's own logs.

Stderr is not used, because Ray forwards it to the terminal of the driver that started the process.
"""

import logging
import os
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from ..fleet_variables import LOG
from ..ray.public.nodes import log_folder
from .entry import LogStyle
from .writing import EntryHandler, begin_log, is_logged

OFF: Final = "off"
FILE_BYTES_MAX: Final = 10_000_000
FILES_MAX: Final = 3  #: How many log files are kept for a process, including the current file


def begin_log_in_ray(service: str) -> None:
    """Write this Ray actor's log entries to a file, unless the node's environment says ``off`` or a log has begun.

    If no log can be written, the actor runs without a log.
    """
    asked = os.environ.get(LOG, "")
    if asked == OFF or is_logged():
        return
    try:
        begin_log(file_handler(log_folder(), service, os.environ))
    except Exception:  # a worker also works without a log; Ray's own log has the reason
        logging.getLogger(__name__).warning("no log is written", exc_info=True)


def file_handler(folder: Path, service: str, environment: Mapping[str, str]) -> EntryHandler:
    """Return a handler that writes to this process's file in a folder. Raises OSError if the file cannot be opened."""
    style = LogStyle.JSON if environment.get(LOG) == LogStyle.JSON.value else LogStyle.TEXT
    path = folder / f"codecfleet-{service}-{os.getpid()}.log"
    file = _File(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_MAX - 1, encoding="utf-8")
    return _FileHandler(file, style, service)


class _FileHandler(EntryHandler):
    def __init__(self, file: "_File", style: LogStyle, service: str) -> None:
        super().__init__(lambda text: file.handle(logging.makeLogRecord({"msg": text})), style, service)
        self._file = file

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class _File(RotatingFileHandler):
    terminator = ""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - ``logging`` calls the method by this name
        """Drop an entry that cannot be written."""
