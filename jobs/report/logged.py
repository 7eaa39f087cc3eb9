"""A job's events as entries of the log."""

from ...cluster.grouping import counted
from ...cluster.logs.actions import LogAction
from ...cluster.logs.entry import LogIds
from ...cluster.logs.writing import log
from .events import Done, Event, JournalOpened, Planned, SegmentFinished, SegmentStarted, Warned


def log_event(event: Event) -> None:
    """Log what operators look for. Leaves out what only shows progress, and the start of a first try."""
    match event:
        case Planned():
            line = f"{counted(event.segments, 'segment')}, {counted(event.frames, 'frame')} to {event.encoder}"
            _log(LogAction.JOB_PLANNED, line, event)
        case JournalOpened() if event.restored:
            _log(LogAction.JOB_RESUMED, f"{counted(event.restored, 'segment')} finished by an earlier run", event)
        case Warned():
            _log(LogAction.JOB_WARNED, f"{event.message} [{event.code}]", event)
        case SegmentStarted() if event.is_second or event.attempt > 1:
            _log(*_started(event), event, event.segment, event.attempt)
        case SegmentFinished():
            line = f"segment {event.segment} is done: {counted(event.frames, 'frame')} in {event.wall_s:.1f} s"
            _log(LogAction.SEGMENT_DONE, line, event, event.segment)
        case Done():
            report = event.report
            line = f"{report.output} is published: {counted(report.frames, 'frame')} in {event.at_s:.1f} s"
            _log(LogAction.JOB_DONE, line, event)


def _started(event: SegmentStarted) -> tuple[LogAction, str]:
    if event.is_second:
        return LogAction.SEGMENT_DOUBLED, f"segment {event.segment} is late, and runs a second time elsewhere"
    return LogAction.SEGMENT_RETRIED, f"segment {event.segment} begins its try {event.attempt}"


def _log(action: LogAction, line: str, event: Event, segment: int | None = None, attempt: int | None = None) -> None:
    log(action, line, LogIds(job=event.job, segment=segment, attempt=attempt))
