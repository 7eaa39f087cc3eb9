"""The schema of a batch's database, and the types of its rows. SQLite keeps the comments and shows them to users."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ....errors import OutputInUse

SCHEMA_VERSION: Final = 1  #: ``PRAGMA user_version``; a new number whenever the meaning of a column changes
APPLICATION_ID: Final = 0x43464C42  #: ``PRAGMA application_id`` of a batch's database: "CFLB" in ASCII

# Users see the comments by `.schema`. A semicolon ends a statement, in comments too.
TABLES: Final = """
CREATE TABLE batch (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    began_s REAL NOT NULL,
    ended_s REAL, -- NULL while the run goes on, and if it was killed
    owner TEXT NOT NULL, -- the run's process, as JSON
    renewed_s REAL NOT NULL
);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY,
    output TEXT NOT NULL UNIQUE, -- its path below the output folder
    source TEXT NOT NULL, -- the input's path or URL
    action TEXT NOT NULL, -- transcode or copy
    overrides TEXT NOT NULL, -- the list's options for this file, as JSON
    spec_sha256 TEXT NOT NULL, -- the digest of all options on which the file's output depends
    listed_run INTEGER NOT NULL, -- the last run that listed the file
    position INTEGER NOT NULL, -- the file's position in that run
    -- waiting (not started, or to be tried again), running (or was running when the batch was killed), done, failed,
    -- done-before or failed-before if it ended in an earlier run and this run has not compared its input yet
    state TEXT NOT NULL,
    was_in_flight INTEGER NOT NULL DEFAULT 0, -- 1 if a try was killed or stopped and may have written the output
    tries INTEGER NOT NULL DEFAULT 0, -- in the last run
    source_bytes INTEGER, -- the input's size at the last try
    source_version TEXT, -- JSON: size and modification time in nanoseconds, or what the store reports
    source_sha256 TEXT, -- only with --hash
    ended_run INTEGER, -- the run in which the file was done or failed
    began_s REAL, -- of the last try
    ended_s REAL,
    -- The result as in the event file_done, and its output below the output folder. Until the file is done, both
    -- describe an output that an earlier try may have left.
    result TEXT,
    published TEXT,
    output_bytes INTEGER,
    frames INTEGER, -- of the output, like its duration
    duration_s REAL,
    encoder TEXT, -- the kind of encoder that wrote it
    -- The failure, as in the event file_failed.
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
    station TEXT NOT NULL, -- its worker, if known
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
"""The list of a new run, kept here until it has been checked."""


class EntryAction(Enum):
    """The work that a run does for an entry. The values are stored in the database."""

    TRANSCODE = "transcode"
    COPY = "copy"


class FileResult(Enum):
    """How an entry's output was made. The values are stored in the database."""

    ENCODED = "encoded"
    KEPT = "kept"  #: The input, byte for byte, because the result was not smaller
    COPIED = "copied"  #: The input, byte for byte, because it is not video


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The identity of an input's content; ``version`` changes with the content, ``sha256`` is None unless requested."""

    version: str
    sha256: str | None

    def is_that_of(self, before: "Content") -> bool:
        """Return whether an input is unchanged: by SHA-256 if both are known, otherwise by version."""
        if self.sha256 is not None and before.sha256 is not None:
            return self.sha256 == before.sha256
        return self.version == before.version


@dataclass(frozen=True, slots=True)
class FileFault:
    """Why an entry failed."""

    error: str  #: the class of the error, from ``codecfleet.errors``; for a defect, the class of the exception
    message: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry:
    """An entry that a run has yet to do or compare."""

    entry: int
    source: str
    output: str  #: relative to the root
    action: EntryAction
    overrides: str
    tries: int  #: the number of tries in this run
    was_in_flight: bool  #: whether a try was killed or stopped, and may have written the file under the output's name
    content: Content | None
    source_bytes: int | None
    #: the file that an earlier run wrote for the same input; a copy may have another extension than ``output``
    published: str | None
    output_bytes: int | None  #: the size of the ``published`` file
    #: why the last try failed; None if no try has failed since the entry was last done
    fault: FileFault | None = None

    @property
    def was_in_use(self) -> bool:
        """Whether the last try failed because another process held the output."""
        return self.fault is not None and self.fault.error == OutputInUse.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSpan:
    """When and where one segment ran; times are in seconds since 1970."""

    segment: int
    began_s: float
    ended_s: float
    frames: int
    station: str
    decoded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStarted:
    """A try begins, and may write a file under its output's name from now on."""

    entry: int
    tries: int
    found: tuple[str, int] | None = None  #: name and size of a file that a killed or stopped try left, to replace


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyNoted:
    """Name and size of the copy that a try is about to make, or, after a failure, of the file that was there before."""

    entry: int
    found: tuple[str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """A try ended, and the entry waits again.

    With ``in_flight``, the try was stopped and may have published its output.
    """

    entry: int
    tries: int
    in_flight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnded:
    """A try has published its output."""

    entry: int
    content: Content
    source_bytes: int | None
    began_s: float  #: since 1970
    ended_s: float
    result: FileResult
    published: str  #: relative to the root
    output_bytes: int
    frames: int = 0  #: for a copy, this and all fields below have their defaults
    duration_s: float = 0.0
    encoder: str = ""  #: the encoder kind
    segments: tuple[SegmentSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBadly:
    """A try failed for good."""

    entry: int
    content: Content | None  #: None if the input could not be examined
    began_s: float  #: since 1970
    ended_s: float
    error: str  #: the error's class
    exit_code: int
    message: str
    next_step: str


Change: TypeAlias = FileStarted | CopyNoted | PutBack | FileEnded | EndedBadly
