"""Work that was found, and its owner."""

from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.actors.media.stores import open_store
from codecfleet.errors import JournalRefused, StorageFailed
from codecfleet.jobs.join.owner import OWNER_FILE
from codecfleet.jobs.journal.found_work import unfinished_spec
from codecfleet.jobs.journal.stores import JOURNAL_FILE, ObjectStore, StoreLease
from codecfleet.jobs.journal.work import WorkPlace, place_of
from codecfleet.jobs.request.spec import TranscodeSpec

from .test_records import HEADER, stream


def test_work_of_a_version_with_other_options_is_refused(tmp_path: Path) -> None:
    """``resume`` names the version that began the work, instead of failing at an unknown option."""
    work = tmp_path / ".out.mp4.codecfleet"
    work.mkdir()
    later = replace(HEADER, job={"codecfleet": "99.0"}, spec={"source": "a", "output": "b", "unheard_of": 1})
    (work / JOURNAL_FILE).write_bytes(stream([later])[0])
    with pytest.raises(JournalRefused, match=r"was begun by codecfleet 99\.0"):
        unfinished_spec(str(work))


def test_work_that_cannot_be_read_is_let_go(tmp_path: Path) -> None:
    """Work whose journal cannot be read is released, so that the same program can open it later."""
    spec = TranscodeSpec(source="in.mp4", output=str(tmp_path / "out.mp4"), work=f"memory://{tmp_path}/work")
    files, root = open_store(place_of(spec))
    record = f"{root}/record-00000000"
    files.makedirs(record)
    with pytest.raises(StorageFailed):
        WorkPlace(spec).open()
    files.rmdir(record)
    again = WorkPlace(spec)
    again.open()
    again.remove()


def test_a_renewal_that_comes_late_does_not_take_the_work_back() -> None:
    """A late renewal by the thread does not take back work that was released."""
    store = ObjectStore("memory://found-work/late")
    lease = StoreLease(store, "out.mp4")
    lease.acquire()
    lease.release()
    lease._renew_once()
    assert store.content(OWNER_FILE) == b""
