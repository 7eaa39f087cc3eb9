"""A job's events as log entries."""

import io
import json
from fractions import Fraction

import pytest

from codecfleet.cluster.logs.entry import LogStyle
from codecfleet.cluster.logs.writing import logged_to
from codecfleet.errors import OutputUnwritable
from codecfleet.jobs.job import Job
from codecfleet.jobs.report import events
from codecfleet.jobs.report.channel import EventChannel, log_event
from codecfleet.jobs.report.events import Event, JournalOpened, SegmentStarted
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.request.spec import TranscodeSpec

FINISHED = events.SegmentFinished("j", 0, 4, 24, 100, 1.25, "n/cpu#0:1")
PLANNED = events.Planned("j", 0.5, 3, 72, Fraction(3), "hevc", "libx265", 2)


@pytest.mark.parametrize(
    ("event", "entry"),
    [
        (PLANNED, ("job.planned", "3 segments, 72 frames to libx265")),
        (JournalOpened("j", 0, "w", 2, 1), ("job.resumed", "2 segments finished by an earlier run")),
        (events.Warned("j", 0, "sound", "it is lost"), ("job.warned", "it is lost [sound]")),
        (SegmentStarted("j", 0, 4, Fraction(0), 24, 2), ("segment.retried", "segment 4 begins its try 2")),
        (
            SegmentStarted("j", 0, 4, Fraction(0), 24, 2, is_second=True),
            ("segment.doubled", "segment 4 is late, and runs a second time elsewhere"),
        ),
        (FINISHED, ("segment.done", "segment 4 is done: 24 frames in 1.2 s")),
    ],
)
def test_an_event_is_an_entry(event: Event, entry: tuple[str, str]) -> None:
    """An entry has the job's name, and the number of the segment that it is about."""
    stream = io.StringIO()
    with logged_to(stream, LogStyle.JSON, "command"):
        log_event(event)
    said = json.loads(stream.getvalue())
    assert (said["action"], said["message"]) == entry
    assert (said["job"], said.get("segment")) == ("j", 4 if "segment" in said["action"] else None)


@pytest.mark.parametrize(
    "event",
    [
        events.StageStarted("j", 0, "encode"),
        SegmentStarted("j", 0, 4, Fraction(0), 24, 1),
        events.Progress("j", 0, 1, 2, 3.0, None, ()),
        JournalOpened("j", 0, "w", 0, 0),
    ],
)
def test_what_only_shows_progress_is_no_entry(event: Event) -> None:
    """Events that only show progress are no entries, so that the log of a long job stays short."""
    stream = io.StringIO()
    with logged_to(stream, LogStyle.TEXT, "command"):
        log_event(event)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutputUnwritable("it is full", "Make room."), "error job.failed: OutputUnwritable: it is full. Make room."),
        (ValueError("odd"), "error defect: a.mkv: ValueError: odd"),
    ],
)
async def test_a_job_that_fails_is_an_entry(error: Exception, said: str) -> None:
    """A failed job is an entry even if its caller does not look; a defect has its traceback."""

    async def run(_channel: EventChannel, _keeps: object) -> Report:
        raise error

    stream = io.StringIO()
    with logged_to(stream, LogStyle.TEXT, "command"):
        job = Job("j1", TranscodeSpec(source="a.mkv", output="b.mkv"), run)
        with pytest.raises(type(error)):
            await job
    assert f'{said} job="j1"' in stream.getvalue()
    assert ("Traceback" in stream.getvalue()) == isinstance(error, ValueError)
