"""Where log entries go: to handlers, at a limited rate, and nowhere by default."""

import io
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.logs import in_ray
from codecfleet.cluster.logs.actions import LogAction
from codecfleet.cluster.logs.entry import LogEntry, LogIds, LogStyle
from codecfleet.cluster.logs.in_ray import file_handler
from codecfleet.cluster.logs.writing import LOGGER, EntryHandler, Quota, is_logged, log, logged_to
from codecfleet.testing import FakeClock

AT_ONCE = Quota().at_once


@given(st.lists(st.floats(0, 10), max_size=300), st.integers(1, 20), st.integers(1, 5))
def test_a_quota_bounds_any_storm(pauses_s: list[float], at_once: int, per_s: int) -> None:
    """A quota allows a burst and then a rate; every entry is either written or counted."""
    quota, now_s, written = Quota(at_once, per_s), 0.0, 0
    for pause_s in pauses_s:
        now_s += pause_s
        written += quota.takes(now_s)
    assert written <= at_once + per_s * now_s
    assert written + quota.suppressed == len(pauses_s)


def record(action: LogAction) -> logging.LogRecord:
    """Return the log record of an entry."""
    entry = LogEntry.of(action, "it happened")
    return logging.makeLogRecord({"levelno": action.level, "entry": entry})


async def test_a_storm_of_one_level_hides_no_other() -> None:
    """After a storm, an entry states how many entries were left out; entries of other levels are still written."""
    texts: list[str] = []
    clock = FakeClock()
    handler = EntryHandler(texts.append, LogStyle.TEXT, "supervisor", clock)
    for _ in range(AT_ONCE + 7):
        handler.handle(record(LogAction.WORKER_UP))
    handler.handle(record(LogAction.DEVICE_QUARANTINED))
    assert len(texts) == AT_ONCE + 1
    assert "device.quarantined" in texts[-1]
    await clock.advance(0.25)
    handler.handle(record(LogAction.WORKER_UP))
    assert "log.suppressed: 7 entries before this were left out" in texts[-2]
    assert len(texts) == AT_ONCE + 3


def test_without_a_handler_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    """A program that uses codecfleet gets no log on stderr unless it asks for one."""
    log(LogAction.JOB_FAILED, "it failed")
    assert not is_logged()
    assert capfd.readouterr() == ("", "")


def test_a_program_may_take_entries_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Entries are records of the logger ``codecfleet``, each with its ``LogEntry``."""
    with caplog.at_level(logging.INFO, "codecfleet"):
        log(LogAction.JOB_DONE, "it is done", LogIds(job="j"))
    (found,) = caplog.records
    entry = found.entry  # type: ignore[attr-defined]
    assert (found.getMessage(), entry.action, entry.ids) == ("it is done", LogAction.JOB_DONE, {"job": "j"})


def test_a_command_writes_while_it_runs() -> None:
    """Entries are written at once during the block; afterwards, logging is as before."""
    stream = io.StringIO()
    before = LOGGER.handlers[:], LOGGER.level, LOGGER.propagate
    with logged_to(stream, LogStyle.JSON, "command"):
        assert is_logged()
        log(LogAction.JOB_DONE, "it is done", LogIds(job="j"))
    log(LogAction.JOB_DONE, "another")
    document = json.loads(stream.getvalue())
    assert (document["action"], document["job"], document["service"]) == ("job.done", "j", "command")
    assert document["process"] == os.getpid()
    assert (LOGGER.handlers, LOGGER.level, LOGGER.propagate) == before


def test_a_stream_that_takes_nothing_stops_nothing() -> None:
    """A closed stderr does not make the work fail."""
    stream = io.StringIO()
    stream.close()
    with logged_to(stream, LogStyle.TEXT, "command"):
        log(LogAction.JOB_DONE, "it is done")


def test_a_process_of_ray_writes_a_file_that_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log file is named after the process, and a limited number of older files is kept."""
    monkeypatch.setattr(in_ray, "FILE_BYTES_MAX", 2000)
    handler = file_handler(tmp_path, "worker", {"CODECFLEET_LOG": "json"})
    for _ in range(100):
        handler.handle(record(LogAction.WORKER_UP))
    handler.close()
    name = f"codecfleet-worker-{os.getpid()}.log"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}.1", f"{name}.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    lines = (tmp_path / name).read_text().splitlines()
    assert {json.loads(line)["action"] for line in lines} == {"worker.up"}


@pytest.mark.parametrize("asked", ["", "off"])
def test_a_log_that_cannot_be_written_stops_nothing(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no folder for the log, none is written; if the log is off, it is not even begun."""
    monkeypatch.setattr(in_ray, "log_folder", lambda: tmp_path / "none")
    monkeypatch.setenv("CODECFLEET_LOG", asked)
    in_ray.begin_log_in_ray("worker")
    assert not is_logged()
