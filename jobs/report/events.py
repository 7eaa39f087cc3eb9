"""The events of a job, as frozen values; docs/events.md describes the schema that ``--json`` prints."""

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from ...errors import CodecfleetError, redacted
from .report import Report

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job.

    ``at_s`` is in seconds since the job was submitted; in a ladder, since its probes or its renditions began.
    """

    kind: ClassVar[str] = "event"
    job: str
    at_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values: ``schema``, ``event``, then the fields of the event."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"schema": SCHEMA_VERSION, "event": self.kind, **fields}


def _plain(value: object) -> object:
    if isinstance(value, Report):
        return value.model_dump(mode="json")
    return float(value) if isinstance(value, Fraction) else value


@dataclass(frozen=True, slots=True)
class StageStarted(Event):
    """A stage of the job begins, as in ``timings_s``: index, plan, startup, probe, encode, gather, proof or publish."""

    kind: ClassVar[str] = "stage"
    stage: str


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """The input was read and the cuts are fixed."""

    kind: ClassVar[str] = "planned"
    segments: int
    frames: int  # the number of frames in the index; the report has the actual number
    duration_s: Fraction
    codec: str
    encoder: str
    workers: int
    warm_fleet: int | None = None  # process id of the warm fleet; None if the job has its own workers or uses a cluster


@dataclass(frozen=True, slots=True)
class SegmentStarted(Event):
    """A segment went to a worker. With ``is_second``, an earlier run of the segment is late and continues."""

    kind: ClassVar[str] = "segment_started"
    segment: int
    start_s: Fraction
    frames: int
    attempt: int
    is_second: bool = False


@dataclass(frozen=True, slots=True)
class SegmentFinished(Event):
    """A segment is encoded and on disk."""

    kind: ClassVar[str] = "segment_finished"
    segment: int
    frames: int
    payload_bytes: int
    wall_s: float
    worker: str  # the worker's name; "" if the pool names none


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """The progress of the whole job; sent at most a few times a second."""

    kind: ClassVar[str] = "progress"
    frames_done: int
    frames_total: int
    fps: float
    eta_s: float | None
    running: tuple[tuple[int, int, int], ...]  # the segments in flight as (segment, frames done, frames to do)


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something the user should know, for example a loss, damage or a fallback."""

    kind: ClassVar[str] = "warning"
    code: str
    message: str
    checks: tuple[str, ...] = ()  # the checks of ``verify`` that may fail because of what happened, as in the report


@dataclass(frozen=True, slots=True)
class JournalOpened(Event):
    """The job can be continued from now on: ``codecfleet resume WORK``."""

    kind: ClassVar[str] = "journal"
    work: str  # the work location: a folder or a URL
    restored: int  # planned segments that an earlier run finished
    redone: int  # planned segments that were in flight when the earlier run ended, or whose payload is damaged


@dataclass(frozen=True, slots=True)
class WorkKept(Event):
    """The job ended without an output, but ``codecfleet resume WORK`` continues from its finished segments."""

    kind: ClassVar[str] = "kept"
    work: str
    segments: int  # planned segments that are finished


@dataclass(frozen=True, slots=True)
class Done(Event):
    """The output is published. This is the last event."""

    kind: ClassVar[str] = "done"
    report: Report


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The job ended without an output, and awaiting it raises the error. This is the last event."""

    kind: ClassVar[str] = "failed"
    error: str  # the error's class, from ``codecfleet.errors``; for a defect, the class of the exception
    message: str
    next_step: str
    exit_code: int

    @classmethod
    def of(cls, job: str, at_s: float, error: BaseException) -> Self:
        """Return the event for a job that ``error`` ended."""
        if isinstance(error, CodecfleetError):
            return cls(job, at_s, type(error).__name__, error.message, error.next_step, error.exit_code)
        text = redacted(str(error))
        return cls(
            job,
            at_s,
            type(error).__name__,
            text,
            "Report this error: it is a defect of codecfleet.",
            CodecfleetError.exit_code,
        )
