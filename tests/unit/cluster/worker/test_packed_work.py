"""Work as bytes, which is unpacked where it runs."""

from dataclasses import dataclass

import pytest

from codecfleet.actors.device.work import Blob, Work, WorkContext
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.packed_work import base_fields, packed_work
from codecfleet.errors import UsageError
from codecfleet.testing import works


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh(Work[int]):
    """Return the length of a blob, and work on a file of its own."""

    blob: Blob

    @property
    def file(self) -> str:
        """Name it."""
        return "film.mkv"

    def run(self, context: WorkContext) -> int:
        """Weigh."""
        context.advance()
        return len(self.blob.content)


def test_runs_as_the_work_would() -> None:
    """With its blobs; a pool sees the same job, label and file."""
    work = Weigh(job="j", label="a", blob=Blob.of(b"network"))
    packed, blobs = BlobCache(Blob.of).pack(work)
    assert b"network" not in packed
    passed_on = packed_work(base_fields(work), packed, blobs)
    assert (passed_on.job, passed_on.label, passed_on.file) == ("j", "a", "film.mkv")
    assert passed_on.run(WorkContext()) == len(b"network")


def test_a_class_that_is_not_installed_here() -> None:
    """The user's error, as for work that was not passed on."""
    work = works.Count(job="j", label="a")
    with pytest.raises(UsageError, match="the work cannot be unpickled on the worker: "):
        packed_work(base_fields(work), b"cno_such_module\nWork\n.", ()).run(WorkContext())
