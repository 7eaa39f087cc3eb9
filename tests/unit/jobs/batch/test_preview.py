"""Dry runs: what would be done, on a copy of the database, and an estimate from samples."""

import asyncio
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import InputUnreadable, StorageFailed, UsageError
from codecfleet.jobs.batch.files import database_path
from codecfleet.jobs.batch.listed.specs import EntrySpecs
from codecfleet.jobs.batch.preview import (
    Estimate,
    Intended,
    Intent,
    Preview,
    SampleFile,
    estimated,
    part_of,
    preview_batch,
)
from codecfleet.jobs.batch.store.database import BatchDatabase
from codecfleet.jobs.batch.store.listing import ListedEntry
from codecfleet.jobs.batch.store.schema import EntryAction
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec

from .entry_rows import failed

SAMPLES = st.builds(
    SampleFile,
    source_bytes=st.integers(1, 10**9),
    output_bytes=st.integers(0, 10**9),
    busy_s=st.integers(0, 10**4),
)


@given(st.lists(SAMPLES, min_size=1, max_size=6), st.integers(1, 64))
def test_samples_of_everything_estimate_it_exactly(samples: list[SampleFile], slots: int) -> None:
    """If all inputs were sampled, the estimate is the sum divided by the slots."""
    source_bytes = sum(each.source_bytes for each in samples)
    found = estimated(samples, source_bytes, slots)
    assert found == Estimate(
        len(samples), sum(e.busy_s for e in samples) / slots, source_bytes, sum(e.output_bytes for e in samples)
    )
    assert estimated([], 10, slots) is None


def test_a_sample_is_two_seconds_of_what_would_be_encoded() -> None:
    """A sample is two seconds from the middle of the requested part; a short input is encoded as a whole."""
    spec = TranscodeSpec(source="a", output="b", start_s=10, if_smaller=True)
    part = part_of(spec, Fraction(20))
    assert (part.start_s, part.end_s, part.no_journal, part.if_smaller) == (19, 21, True, False)
    assert part_of(spec, Fraction(4)).start_s == 10


async def cannot(spec: TranscodeSpec) -> Report:
    """Fail as a job with a broken input does."""
    raise InputUnreadable(spec.source)


def looked(spec: BatchSpec) -> tuple[list[Intended], Preview]:
    """Make a dry run whose samples all fail."""
    shown: list[Intended] = []
    preview = asyncio.run(preview_batch(spec.resolved(), cannot, lambda: 2, shown.append))
    return shown, preview


def test_nothing_is_written(tmp_path: Path) -> None:
    """A dry run writes no output, folder or database; without samples it names the inputs and estimates nothing."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.mkv").write_bytes(b"a")
    (tmp_path / "in/b.srt").write_bytes(b"b")
    shown, preview = looked(BatchSpec(inputs=tmp_path / "in", output=tmp_path / "out", mirror=True))
    assert [(each.intent, Path(each.output).name) for each in shown] == [
        (Intent.ENCODE, "a.mkv"),
        (Intent.COPY, "b.srt"),
    ]
    ((source, error),) = preview.failed_samples
    assert (Path(source).name, type(error), preview.exit_code) == ("a.mkv", InputUnreadable, 3)
    assert (preview.counts, preview.left_out, preview.estimate) == ({Intent.ENCODE: 1, Intent.COPY: 1}, 0, None)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(("content", "error"), [(b"text, which no database is", StorageFailed), (None, UsageError)])
def test_what_is_not_a_batchs_database_is_refused(
    tmp_path: Path, content: bytes | None, error: type[Exception]
) -> None:
    """A file that is not a batch's database is refused in one line, and nothing appears beside it."""
    (tmp_path / "a.mkv").write_bytes(b"a")
    database = tmp_path / "other.sqlite"
    if content is None:
        with closing(sqlite3.connect(database)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("CREATE TABLE runs (a)")
    else:
        database.write_bytes(content)
    before = database.read_bytes()
    with pytest.raises(error, match="other"):
        looked(BatchSpec(inputs=tmp_path / "a.mkv", output=tmp_path / "out", database=database))
    assert database.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.mkv", "other.sqlite"}


def test_an_empty_database_is_that_of_a_batch_to_come(tmp_path: Path) -> None:
    """An empty database, or one without tables, counts as that of a new batch."""
    (tmp_path / "a.mkv").write_bytes(b"a")
    (tmp_path / "empty.sqlite").touch()
    shown, _ = looked(BatchSpec(inputs=tmp_path / "a.mkv", output=tmp_path / "out", database=tmp_path / "empty.sqlite"))
    assert [each.intent for each in shown] == [Intent.ENCODE]


def test_a_running_batch_may_be_looked_at(tmp_path: Path) -> None:
    """The database of a running batch is copied; unchanged failures are named, and nonsense is refused as in a run."""
    spec = BatchSpec(inputs=tmp_path / "list.txt", output=tmp_path / "out", output_template="{stem}.mp4")
    (tmp_path / "list.txt").write_text(f"{tmp_path}/gone.mkv\n{tmp_path}/new.mkv\n")
    digest = EntrySpecs(spec).digest("{}")
    running = BatchDatabase(database_path(spec), str(tmp_path / "out")).open()
    running.take_list(
        [ListedEntry("gone.mp4", f"{tmp_path}/gone.mkv", EntryAction.TRANSCODE, "{}", digest, None)], retry_failed=False
    )
    running.write([failed(1)])
    shown, _ = looked(spec)
    assert [(each.intent, Path(each.source).name, each.error and each.error.message) for each in shown] == [
        (Intent.LEAVE_FAILED, "gone.mkv", "not there"),
        (Intent.REFUSE, "new.mkv", f"there is no file {tmp_path}/new.mkv"),
    ]
    assert sum(running.counts().values()) == 1
    running.close()
    (tmp_path / "list.txt").write_text("/a/x.mkv\n/b/x.mkv\n")
    with pytest.raises(UsageError, match="would both become"):
        looked(spec)
