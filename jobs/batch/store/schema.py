"""The database's schema, as docs/batch.md describes it, and what it holds of an entry."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ....errors import OutputInUse

SCHEMA_VERSION: Final = 1
"""``PRAGMA user_version`` of a database; a version that changes the meaning of a column changes it."""
APPLICATION_ID: Final = 0x43464C42
"""``PRAGMA application_id``, by which a database is known as a batch's: "CFLB" in ASCII."""

TABLES: Final = """
CREATE TABLE batch (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    began_s REAL NOT NULL,
    ended_s REAL,
    owner TEXT NOT NULL,
    renewed_s REAL NOT NULL
);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY,
    output TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    overrides TEXT NOT NULL,
    spec_sha256 TEXT NOT NULL,
    listed_run INTEGER NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL,
    was_in_flight INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    source_bytes INTEGER,
    source_version TEXT,
    source_sha256 TEXT,
    ended_run INTEGER,
    began_s REAL,
    ended_s REAL,
    result TEXT,
    published TEXT,
    output_bytes INTEGER,
    frames INTEGER,
    duration_s REAL,
    encoder TEXT,
    error TEXT,
    exit_code INTEGER,
    message TEXT,
    next_step TEXT
);
CREATE INDEX next_entries ON entries (state, tries, position);
CREATE TABLE segments (
    entry INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    run INTEGER NOT NULL,
    began_s REAL NOT NULL,
    ended_s REAL NOT NULL,
    frames INTEGER NOT NULL,
    station TEXT NOT NULL,
    decoded_by TEXT NOT NULL,
    PRIMARY KEY (entry, segment)
) WITHOUT ROWID;
"""
LISTED: Final = """
CREATE TEMP TABLE listed (
    position INTEGER PRIMARY KEY,
    output TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    overrides TEXT NOT NULL,
    spec_sha256 TEXT NOT NULL,
    source_bytes INTEGER,
    copy TEXT
);
"""
"""What a new run lists, until all of it is known to be right."""


class EntryAction(Enum):
    """The values are those in the database."""

    TRANSCODE = "transcode"
    COPY = "copy"


class FileResult(Enum):
    """An entry's output; the values are those in the database."""

    ENCODED = "encoded"
    KEPT = "kept"  #: The input, byte for byte: the result was not smaller
    COPIED = "copied"  #: The input, byte for byte: it is not video


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Which content an input had: ``version`` is text that changes with it; ``sha256`` is None unless asked for."""

    version: str
    sha256: str | None

    def is_that_of(self, before: "Content") -> bool:
        """Return whether an input is what it was: by SHA-256 where both are known, else by its version."""
        if self.sha256 is not None and before.sha256 is not None:
            return self.sha256 == before.sha256
        return self.version == before.version


@dataclass(frozen=True, slots=True)
class FileFault:
    """Why an entry failed."""

    error: str  #: The class of the error, as in ``codecfleet.errors``; the exception's own where that is a defect.
    message: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry:
    """An entry that is to be done or compared."""

    entry: int
    source: str
    output: str  #: relative to the root
    action: EntryAction
    overrides: str
    tries: int  #: in this run
    was_in_flight: bool  #: a try was killed or stopped, and the file under its output's name may be that try's
    content: Content | None
    source_bytes: int | None
    published: str | None  #: by an earlier run, from the same input; a copy has another extension than ``output``
    output_bytes: int | None  #: of what is ``published``
    fault: FileFault | None = None  #: Why its last try failed; None where none has failed since it was done last

    @property
    def was_in_use(self) -> bool:
        """Whether another process held its output when its last try failed: the file there may be a killed try's."""
        return self.fault is not None and self.fault.error == OutputInUse.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSpan:
    """When and where one segment ran; seconds since 1970."""

    segment: int
    began_s: float
    ended_s: float
    frames: int
    station: str
    decoded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStarted:
    """A try begins: the file under its output's name may be its own from here on.

    ``found`` is name and size of what a killed or stopped try may have left: should this one fail, that may be
    replaced, and no other file of the name.
    """

    entry: int
    tries: int
    found: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyNoted:
    """Name and size of the copy that a try makes next under a name of its own; or those before it, where it failed."""

    entry: int
    found: tuple[str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """A try ended, and the entry waits again; ``in_flight`` where the try was stopped and may have published."""

    entry: int
    tries: int
    in_flight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnded:
    """A try has published its output."""

    entry: int
    content: Content
    source_bytes: int | None
    began_s: float
    ended_s: float
    result: FileResult
    published: str
    output_bytes: int
    frames: int = 0
    duration_s: float = 0.0
    encoder: str = ""
    segments: tuple[SegmentSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBadly:
    """A try failed for good; ``content`` is None where the input could not even be looked at."""

    entry: int
    content: Content | None
    began_s: float
    ended_s: float
    error: str
    exit_code: int
    message: str
    next_step: str


Change: TypeAlias = FileStarted | CopyNoted | PutBack | FileEnded | EndedBadly
