"""Log entries: their content and form, and that they contain no secret."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.logs.actions import LEVELS, LogAction
from codecfleet.cluster.logs.entry import TRACE_MAX, LogEntry, LogIds, LogStyle, is_entry

HIDDEN = "Hidden0Value"
ADDRESS = f"https://me:{HIDDEN}@host/film.mkv?X-Amz-Signature={HIDDEN}&part=1"
AT_S = 1795571100.25


def written(entry: LogEntry, style: LogStyle) -> str:
    """Return an entry as one process writes it at one time."""
    return entry.written(style, at_s=AT_S, service="worker", process=7)


def test_text_has_time_level_action_line_and_ids() -> None:
    """A person can read an entry from left to right, and grep can find each part."""
    ids = LogIds(job="j1", segment=0, worker="a/cpu#0:12")
    text = written(LogEntry.of(LogAction.SEGMENT_FAILED, "try 1 of segment 0 failed", ids), LogStyle.TEXT)
    assert text == (
        "2026-11-25T01:45:00.250Z warning segment.failed: try 1 of segment 0 failed "
        'job="j1" segment=0 worker="a/cpu#0:12"'
    )


def test_json_has_the_same_as_one_document() -> None:
    """In JSON, ids are top-level fields; ids that do not apply are left out."""
    entry = LogEntry.of(LogAction.WORKER_LOST, "worker n/cpu#0 died", LogIds(node="n", worker="n/cpu#0:3"))
    assert json.loads(written(entry, LogStyle.JSON)) == {
        "schema": 1,
        "time": "2026-11-25T01:45:00.250Z",
        "level": "warning",
        "action": "worker.lost",
        "message": "worker n/cpu#0 died",
        "service": "worker",
        "process": 7,
        "node": "n",
        "worker": "n/cpu#0:3",
    }


@pytest.mark.parametrize("style", LogStyle)
def test_no_secret_is_in_an_entry(style: LogStyle) -> None:
    """Secrets are removed from an entry's line, ids and traceback; the rest of an address stays."""
    with pytest.raises(ValueError, match="https") as caught:
        Fraction(ADDRESS)
    entry = LogEntry.of(LogAction.DEFECT, f"{ADDRESS} failed", LogIds(file=ADDRESS), caught.value)
    text = written(entry, style)
    assert HIDDEN not in text
    assert text.count("me:***@host/film.mkv?X-Amz-Signature=***&part=1") == 3
    assert "Traceback" in text


@given(line=st.text(), file=st.text(min_size=1), style=st.sampled_from(LogStyle))
def test_an_entry_is_one_line_whatever_is_in_it(line: str, file: str, style: LogStyle) -> None:
    """An entry is one line, although names and tags come from untrusted files, and a terminal may show the log."""
    text = written(LogEntry.of(LogAction.FILE_DONE, line, LogIds(file=file)), style)
    assert text.isprintable()
    assert is_entry(text)


@given(name=st.text(st.characters(exclude_categories=[])), style=st.sampled_from(LogStyle))
def test_a_traceback_is_escaped_whatever_is_in_its_error(name: str, style: LogStyle) -> None:
    """A traceback is escaped; a file's name may contain control characters or a forged entry, or not be UTF-8."""
    text = written(LogEntry.of(LogAction.DEFECT, "a defect", error=ValueError(f"\x1b[2J\ud800{name}")), style)
    first, *below = text.split("\n")
    assert is_entry(first)
    assert all(line.isprintable() for line in (first, *below))
    assert all(line.startswith("  ") for line in below)
    assert text.encode()


def test_a_traceback_is_bounded() -> None:
    """The end of a long traceback is kept, since it has the error itself."""
    entry = LogEntry.of(LogAction.DEFECT, "a defect", error=ValueError("x" * 2 * TRACE_MAX + "the end"))
    assert len(entry.trace) == TRACE_MAX
    assert entry.trace.rstrip().endswith("the end")


@pytest.mark.parametrize("line", ["codecfleet: it is done", '{"schema":1,"event":"done"}', "2026-11-25 films", ""])
def test_other_lines_of_a_program_are_no_entries(line: str) -> None:
    """Events, remarks and answers are not mistaken for entries."""
    assert not is_entry(line)


def test_actions_are_words_that_differ_and_are_used(repository: Path) -> None:
    """Each action has a unique word, a named level and a description, and some code logs it."""
    words = [action.word for action in LogAction]
    assert len(words) == len(set(words)) == len(LogAction.__members__)
    assert all(action.level in LEVELS and action.says for action in LogAction)
    paths = (path for room in ("cluster", "codecfleet", "jobs") for path in (repository / room).rglob("*.py"))
    used = {name for path in paths for name in re.findall(r"\bLogAction\.(\w+)", path.read_text(encoding="utf-8"))}
    assert LogAction.__members__.keys() <= used
