"""Log entries, and their forms as text and as JSON."""

import json
import re
import traceback
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Self

from ...errors import one_line, redacted
from .actions import LEVELS, LogAction

SCHEMA: Final = 1
TRACE_MAX: Final = 8000  #: How many characters are kept from the end of a traceback


class LogStyle(Enum):
    """The style in which entries are written; ``CODECFLEET_LOG`` names a style by its value."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIds:
    """The subject of an entry; fields that do not apply are "" or None."""

    job: str = ""  #: the job's name in its driver
    segment: int | None = None  #: the segment's number
    attempt: int | None = None  #: the number of the attempt at the segment
    node: str = ""  #: Ray's id of the node
    device: str = ""  #: the device's name in the inventory
    worker: str = ""  #: the worker's station and process number
    client: str = ""  #: the driver's name
    file: str = ""  #: an input of a batch

    def known(self) -> dict[str, str | int]:
        """Return the ids that are set; secrets in addresses are redacted."""
        found = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        return {name: one_line(value) if isinstance(value, str) else value for name, value in found.items()}


NO_IDS: Final = LogIds()


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry: an action, a readable line without secrets or control characters, ids, and possibly a traceback."""

    action: LogAction
    line: str
    ids: dict[str, str | int]
    trace: str = ""

    @classmethod
    def of(cls, action: LogAction, line: str, ids: LogIds = NO_IDS, error: BaseException | None = None) -> Self:
        """Return an entry; ``error`` is a defect whose traceback is included."""
        trace = "" if error is None else _escaped(redacted("".join(traceback.format_exception(error))))
        return cls(action, one_line(line), ids.known(), trace[-TRACE_MAX:])

    def written(self, style: LogStyle, *, at_s: float, service: str, process: int) -> str:
        """Return the entry as a line without a line end; in the text style, the lines of a traceback follow.

        ``at_s`` is in seconds since 1970; ``service`` is the kind of the writing process, and ``process`` is its id.
        """
        if style is LogStyle.TEXT:
            ids = "".join(f" {name}={json.dumps(value)}" for name, value in self.ids.items())
            below = "".join(f"\n  {line}" for line in self.trace.splitlines())
            return f"{_utc(at_s)} {self._level} {self.action.word}: {self.line}{ids}{below}"
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "time": _utc(at_s),
            "level": self._level,
            "action": self.action.word,
            "message": self.line,
            "service": service,
            "process": process,
            **self.ids,
        }
        return json.dumps(document | ({"trace": self.trace} if self.trace else {}), separators=(",", ":"))

    @property
    def _level(self) -> str:
        return LEVELS[self.action.level]


def _escaped(trace: str) -> str:
    """Escape control characters except line ends, because an error's message may contain a file's name."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in trace)


_ENTRY: Final = re.compile(r'(\{"schema":\d+,"time":")?\d{4}-\d\d-\d\dT[\d:.]+Z("| (info|warning|error) )')


def is_entry(line: str) -> bool:
    """Return whether a line of a program's output is a log entry in one of the styles."""
    return _ENTRY.match(line) is not None


def _utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
