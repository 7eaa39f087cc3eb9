"""The database of a batch: its content, its owner, and what is refused before a run begins."""

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import OutputInUse, OutputUnwritable, StorageFailed, UsageError
from codecfleet.jobs.batch.store import schema
from codecfleet.jobs.batch.store.database import BatchDatabase
from codecfleet.jobs.batch.store.listing import ListedEntry
from codecfleet.jobs.batch.store.schema import Content, EntryAction, FileStarted, PutBack
from codecfleet.jobs.batch.store.states import EntryState

from .entry_rows import done, failed, listed

ROOT = "/out"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a database that does not exist yet."""
    return tmp_path / "out/batch.sqlite"


@contextmanager
def reopened(path: Path, *entries: ListedEntry, retry_failed: bool = False) -> Iterator[BatchDatabase]:
    """Open a database for a run that lists these entries."""
    with closing(BatchDatabase(path, ROOT).open()) as opened:
        opened.take_list(entries, retry_failed=retry_failed)
        yield opened


def hand_over(path: Path, renewed_s: float | None = None, **changes: str) -> None:
    """Make another process the owner of a database's newest run."""
    with closing(sqlite3.connect(path)) as editor, editor:
        owner = json.loads(editor.execute("SELECT owner FROM runs").fetchone()[0]) | changes
        editor.execute("UPDATE runs SET owner = ?, renewed_s = coalesce(?, renewed_s)", (json.dumps(owner), renewed_s))


@pytest.fixture
def database(path: Path) -> Iterator[BatchDatabase]:
    """A new database."""
    with closing(BatchDatabase(path, ROOT).open()) as opened:
        yield opened


def counted(database: BatchDatabase) -> dict[str, int]:
    """Return the states of the entries."""
    return {state.value: count for state, count in database.counts().items() if count}


def test_a_killed_run_goes_on_where_it_was(path: Path, database: BatchDatabase) -> None:
    """After a kill, finished entries stay done and are compared; entries in flight wait, marked as such."""
    database.take_list([listed(n) for n in range(1, 5)], retry_failed=False)
    database.write([FileStarted(entry=n, tries=1) for n in (1, 2, 3)])
    database.write([done(1), failed(2)])
    assert counted(database) == {"done": 1, "failed": 1, "running": 1, "waiting": 1}
    database.close()  # a death changes nothing but the lease
    with reopened(path, *(listed(n) for n in range(1, 6))) as again:
        assert counted(again) == {"done-before": 1, "failed-before": 1, "waiting": 3}
        waiting = again.entries(EntryState.WAITING, 10)
        assert {each.source: each.was_in_flight for each in waiting} == {
            "/in/3.mkv": True,
            "/in/4.mkv": False,
            "/in/5.mkv": False,
        }
        (before,) = again.entries(EntryState.DONE_BEFORE, 10)
    assert (before.published, before.output_bytes, before.content) == ("1.mp4", 4, Content(version="v", sha256=None))


def test_other_options_another_input_and_a_retry_make_an_entry_wait(path: Path, database: BatchDatabase) -> None:
    """Other options, another input or a retry make a listed entry wait; unlisted entries are left alone."""
    database.take_list([listed(n) for n in range(1, 5)], retry_failed=False)
    database.write([FileStarted(entry=n, tries=1) for n in range(1, 5)])
    database.write([done(1), done(2), failed(3), done(4)])
    database.close()
    with reopened(path, listed(1, spec="o"), listed(2, source="/in/x.mkv"), listed(3), retry_failed=True) as again:
        assert counted(again) == {"waiting": 3}
        first, second, _ = again.entries(EntryState.WAITING, 10)
    assert (first.published, second.published) == ("1.mp4", None)  # the output of another input must not be replaced


def test_an_entry_that_is_put_back_comes_last(database: BatchDatabase) -> None:
    """An entry that failed because of the machines is tried after all others."""
    database.take_list([listed(n) for n in range(1, 4)], retry_failed=False)
    database.write([FileStarted(entry=1, tries=1)])
    database.write([PutBack(entry=1, tries=1, in_flight=False)])
    assert [each.entry for each in database.entries(EntryState.WAITING, 10)] == [2, 3, 1]
    assert database.entries(EntryState.WAITING, 10)[-1].tries == 1


def test_what_a_stopped_try_may_have_published_is_known_until_it_is_done(path: Path, database: BatchDatabase) -> None:
    """The file of a stopped try stays known by name and size, through failures and runs, until the entry is done."""
    database.take_list([listed(1)], retry_failed=False)
    database.write([FileStarted(entry=1, tries=1)])
    database.write([PutBack(entry=1, tries=0, in_flight=True)])
    database.close()
    with reopened(path, listed(1)) as again:
        assert [each.was_in_flight for each in again.entries(EntryState.WAITING, 1)] == [True]
        again.write([FileStarted(entry=1, tries=1, found=("1.mp4", 7)), PutBack(entry=1, tries=1, in_flight=False)])
        (entry,) = again.entries(EntryState.WAITING, 1)
        assert (entry.was_in_flight, entry.published, entry.output_bytes) == (False, "1.mp4", 7)
        again.write([FileStarted(entry=1, tries=2), done(1)])
    with reopened(path, listed(1)) as last:
        assert [each.was_in_flight for each in last.entries(EntryState.DONE_BEFORE, 1)] == [False]


def test_two_inputs_of_one_output_are_refused_by_name(path: Path, database: BatchDatabase) -> None:
    """Two inputs with the same output are refused before anything begins; one input may be listed twice."""
    assert database.take_list([listed(1), listed(1)], retry_failed=False) == 1
    with pytest.raises(UsageError, match=r"/in/1.mkv and /x/1.mkv would both become 1.mp4"):
        database.take_list([listed(2), listed(1), listed(1, source="/x/1.mkv")], retry_failed=False)
    with pytest.raises(UsageError, match="listed twice, with different options"):
        database.take_list([listed(1), listed(1, spec="other")], retry_failed=False)
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    reader.close()


def test_an_output_is_not_an_input_of_the_next_run(database: BatchDatabase) -> None:
    """An output is not taken as an input of the next run, although a folder may hold both."""
    database.take_list([listed(1)], retry_failed=False)
    entries = [listed(1), ListedEntry("1.new.mp4", f"{ROOT}/1.mp4", EntryAction.TRANSCODE, "{}", "s", 4)]
    assert database.take_list(entries, retry_failed=False) == 1


def test_what_lies_where_its_own_output_would_is_an_earlier_runs_or_refused(database: BatchDatabase) -> None:
    """A folder of AVI files may be its own output folder in every run, but other films in it are not replaced."""
    avi, made = listed(1, source=f"{ROOT}/1.avi"), listed(1, source=f"{ROOT}/1.mp4")
    strange = replace(listed(2, source=f"{ROOT}/2.mp4"), place="list.csv:3")
    assert database.take_list([avi], retry_failed=False) == 1
    assert database.take_list([avi, made], retry_failed=False) == 1
    assert [each.source for each in database.entries(EntryState.WAITING, 9)] == [f"{ROOT}/1.avi"]
    with pytest.raises(UsageError, match=f"list.csv:3: {ROOT}/2.mp4 would be replaced by its own output"):
        database.take_list([avi, strange], retry_failed=False)


@pytest.mark.parametrize(
    "other",
    [
        ListedEntry("1.mkv", "/in/x.mov", EntryAction.TRANSCODE, "{}", "s", 4),
        ListedEntry("x.mp4", f"{ROOT}/1.mkv", EntryAction.TRANSCODE, "{}", "s", 4),
        replace(listed(3, source="/in/x.mkv"), copy="1.mkv"),
    ],
)
def test_an_input_may_not_be_copied_over_another_file_of_the_batch(database: BatchDatabase, other: ListedEntry) -> None:
    """An input whose copy would replace another file of the batch is refused, even with ``--overwrite``."""
    assert database.take_list([listed(1), other], retry_failed=False) == 2
    with pytest.raises(UsageError, match=r"may be copied to 1\.mkv"):
        database.take_list([replace(listed(1), copy="1.mkv"), other], retry_failed=False)


def test_one_process_owns_a_database_at_a_time(path: Path, database: BatchDatabase) -> None:
    """A second process is refused with the owner's name, but readers may open the database."""
    database.take_list([listed(1)], retry_failed=False)
    with pytest.raises(OutputInUse, match=r"process \d+"):
        BatchDatabase(path, ROOT).open()
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    assert reader.execute("SELECT state FROM entries").fetchall() == [("waiting",)]
    reader.close()


def test_a_dead_owner_is_followed_at_once_and_loses_its_say(path: Path, database: BatchDatabase) -> None:
    """If the owner has died on the same machine, the next process takes over at once, and late writes are refused."""
    database.take_list([listed(1)], retry_failed=False)
    hand_over(path, began="1")
    with reopened(path, listed(1)) as successor:
        assert successor.run == 2
        with pytest.raises(OutputInUse):
            database.write([FileStarted(entry=1, tries=1)])


@pytest.mark.usefixtures("database")
def test_a_lease_of_another_machine_runs_out(path: Path) -> None:
    """A process on another machine may take over after a minute without a renewal."""
    hand_over(path, 1000, boot="elsewhere")
    with pytest.raises(OutputInUse, match="try again in 10 s"):
        BatchDatabase(path, ROOT, clock=lambda: 1050.0).open()
    BatchDatabase(path, ROOT, clock=lambda: 1061.0).open().close()


def test_what_is_not_this_batchs_database_is_left_alone(tmp_path: Path, path: Path, database: BatchDatabase) -> None:
    """A database of another root, program or version is refused with the reason."""
    database.take_list([], retry_failed=False)
    database.close()
    with pytest.raises(UsageError, match="batch that writes to /out"):
        BatchDatabase(path, "/elsewhere").open()
    with sqlite3.connect(path) as editor:
        editor.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    editor.close()
    with pytest.raises(UsageError, match="has schema 2"):
        BatchDatabase(path, ROOT).open()
    text = tmp_path / "film.mkv"
    text.write_bytes(b"not a database, but long enough to be looked at" * 20)
    with pytest.raises(OutputUnwritable):
        BatchDatabase(text, ROOT).open()
    assert text.read_bytes().startswith(b"not a database")


def _copied(database: Path, folder: Path) -> tuple[Path, Path]:
    """Copy a database's file and its log, as a kill leaves them, and return both paths."""
    folder.mkdir()
    copies = folder / database.name, folder / f"{database.name}-wal"
    for copy in copies:
        shutil.copy(database.with_name(copy.name), copy)
    return copies


@pytest.mark.parametrize("was_killed", [False, True])
def test_another_programs_database_is_not_changed(tmp_path: Path, *, was_killed: bool) -> None:
    """Another program's database keeps every byte and no file appears beside it, even if its tables are in a log."""
    mail = tmp_path / "mail.sqlite"
    with closing(sqlite3.connect(mail)) as editor:
        editor.execute(f"PRAGMA journal_mode = {'WAL' if was_killed else 'DELETE'}")
        editor.execute("CREATE TABLE letters (a)")
        files = list(_copied(mail, tmp_path / "killed")) if was_killed else [mail]
    before = [each.read_bytes() for each in files]
    with pytest.raises(UsageError, match="not a batch's"):
        BatchDatabase(files[0], ROOT).open()
    assert [each.read_bytes() for each in files] == before
    assert was_killed or list(tmp_path.iterdir()) == files


def test_a_database_whose_log_is_being_written_into_it_is_in_use(
    tmp_path: Path, path: Path, database: BatchDatabase
) -> None:
    """A database whose log is being merged into it counts as in use, because its file alone is incomplete."""
    database.take_list([listed(n) for n in range(1, 4)], retry_failed=False)
    file, log = _copied(path, tmp_path / "meanwhile")
    file.write_bytes(_last_first_page(log.read_bytes()))
    with pytest.raises(OutputInUse):
        BatchDatabase(file, ROOT).open()


def _last_first_page(log: bytes) -> bytes:
    """Return the newest version of a database's first page in the log: https://sqlite.org/fileformat2.html#walformat."""
    page_bytes = int.from_bytes(log[8:12])
    frames = range(32, len(log) - page_bytes - 23, 24 + page_bytes)
    last = max(at for at in frames if int.from_bytes(log[at : at + 4]) == 1)
    return log[last + 24 : last + 24 + page_bytes]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (sqlite3.SQLITE_FULL, "Free some space"),
        (sqlite3.SQLITE_BUSY, "Close the program"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "Check the permissions"),
        (sqlite3.SQLITE_CANTOPEN, "Check the permissions"),
        (sqlite3.SQLITE_IOERR_WRITE, "Check the disk"),
        (sqlite3.SQLITE_CORRUPT, "Restore the database"),
    ],
)
def test_each_fault_of_a_database_has_its_own_next_step(database: BatchDatabase, code: int, step: str) -> None:
    """Only an error about lack of space advises to make space."""
    error = sqlite3.OperationalError("a fault")
    error.sqlite_errorcode = code

    def write() -> None:
        with database._transaction():
            raise error

    with pytest.raises(StorageFailed, match=step):
        write()


@pytest.mark.parametrize("endless", [False, True])
def test_a_database_that_is_no_file_is_refused(path: Path, *, endless: bool) -> None:
    """A pipe or device in place of the database is refused, without waiting for it or reading it."""
    path.parent.mkdir()
    if endless:
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(OutputUnwritable, match="is not a file"):
        BatchDatabase(path, ROOT).open()


@pytest.mark.parametrize("removed", [[""], ["-wal"], ["", "-wal", "-shm"]])
def test_a_removed_database_is_written_again(path: Path, database: BatchDatabase, removed: list[str]) -> None:
    """A removed database is written again with all its content, instead of continuing in the removed file."""
    database.take_list([listed(n) for n in range(1, 4)], retry_failed=False)
    for end in removed:
        path.with_name(f"{path.name}{end}").unlink()
    database.write([FileStarted(entry=1, tries=1)])
    assert database.counts()[EntryState.WAITING] == 2
    database.close()
    with closing(sqlite3.connect(path)) as reader:
        states = reader.execute("SELECT state FROM entries ORDER BY entry").fetchall()
        assert states == [("running",), ("waiting",), ("waiting",)]
        assert reader.execute("SELECT ended_s IS NOT NULL FROM runs").fetchall() == [(1,)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_database_that_another_file_replaces_is_not_written_over(path: Path, database: BatchDatabase) -> None:
    """A file that has replaced the database is not overwritten, since it may be the user's copy."""
    path.unlink()
    path.write_bytes(b"precious")
    with pytest.raises(StorageFailed, match="was replaced by another file"):
        database.counts()
    database.close()
    assert path.read_bytes() == b"precious"


def test_a_full_disk_is_named_where_sqlite_has_ended_the_transaction(database: BatchDatabase) -> None:
    """On a full disk, the error names the disk and not SQLite's rollback."""

    def write() -> None:
        with database._transaction() as connection:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(StorageFailed, match="database or disk is full"):
        write()
    assert database.entries(EntryState.WAITING, 1) == []


def test_a_damaged_database_and_a_file_in_its_folders_place_are_named(tmp_path: Path) -> None:
    """A damaged database, and a file in place of its folder, are reported with different next steps."""
    path = tmp_path / "batch.sqlite"
    with closing(BatchDatabase(path, ROOT).open()) as begun:
        begun.take_list([listed(n) for n in range(1, 400)], retry_failed=False)
    pages = path.read_bytes()
    path.write_bytes(pages[:8192] + b"\xa5" * (len(pages) - 8192))
    with pytest.raises(StorageFailed, match=r"malformed.* Restore the database"):
        BatchDatabase(path, ROOT).open()
    (tmp_path / "film.mp4").touch()
    with pytest.raises(OutputUnwritable, match=r"film\.mp4 is not a folder"):
        BatchDatabase(tmp_path / "film.mp4/batch.sqlite", ROOT).open()


def test_only_its_owner_may_read_it(path: Path, database: BatchDatabase) -> None:
    """Only the owner may read the database and its log, because addresses may hold secrets."""
    database.take_list([listed(1)], retry_failed=False)
    beside = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert beside == {f"batch.sqlite{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}


@given(st.lists(st.sampled_from(["start", "done", "failed", "back"]), max_size=12))
def test_any_order_of_events_keeps_the_counts_whole(events: list[str]) -> None:
    """Impossible events are refused and change nothing."""
    with TemporaryDirectory() as folder, closing(BatchDatabase(Path(folder, "batch.sqlite"), ROOT).open()) as with_all:
        with_all.take_list([listed(1)], retry_failed=False)
        for event in events:
            change = {
                "start": FileStarted(entry=1, tries=1),
                "done": done(1),
                "failed": failed(1),
                "back": PutBack(entry=1, tries=1, in_flight=False),
            }[event]
            before = counted(with_all)
            try:
                with_all.write([change])
            except ValueError:
                assert counted(with_all) == before
            assert sum(counted(with_all).values()) == 1
