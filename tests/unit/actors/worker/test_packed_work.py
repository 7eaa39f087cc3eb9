"""Pickled work, and the blobs that are sent beside it."""

from dataclasses import dataclass

import pytest

from codecfleet.actors.device.work import Blob, Work, WorkContext
from codecfleet.actors.worker.packed_work import BlobCache, base_fields, packed_work, unpack
from codecfleet.errors import UsageError
from codecfleet.testing import works

LARGE = Blob.of(b"a network" * 10_000)
SMALL = Blob.of(b"another")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh(Work[int]):
    """Returns the size of its blobs."""

    blobs: tuple[Blob, ...]
    spare: object = None

    @property
    def file(self) -> str:
        """Name it."""
        return "film.mkv"

    def run(self, context: WorkContext) -> int:
        """Add them up."""
        context.advance()
        return sum(len(blob.content) for blob in self.blobs)


def test_each_blob_is_sent_once() -> None:
    """A blob is sent once for any number of work items in any order; later items only refer to it."""
    sent: list[bytes] = []

    def send(content: bytes) -> str:
        sent.append(content)
        return f"place {len(sent)}"

    post = BlobCache(send)
    _, first = post.pack(Weigh(job="j", label="one", blobs=(LARGE,)))
    _, second = post.pack(Weigh(job="j", label="two", blobs=(SMALL, LARGE)))
    assert (first, second) == (("place 1",), ("place 2", "place 1"))
    assert post.pack(Weigh(job="j", label="three", blobs=()))[1] == ()
    assert sent == [LARGE.content, SMALL.content]


def test_work_arrives_as_it_was_and_carries_no_contents() -> None:
    """Unpacked work has its blobs; pickled work does not grow with the blobs, however many times they occur."""
    work = Weigh(job="j", label="one", blobs=(LARGE, SMALL, LARGE))
    packed, contents = BlobCache(bytes).pack(work)
    assert len(packed) < 1000
    assert contents == (LARGE.content, SMALL.content)
    found = unpack(packed, contents)
    assert found == work
    assert found.run(WorkContext()) == work.run(WorkContext())


def test_blobs_are_told_apart_by_their_contents() -> None:
    """Equal bytes are the same blob, wherever they were read."""
    assert Blob.of(b"another") == SMALL
    assert Blob.of(b"an other") != SMALL
    assert "another" not in repr(SMALL)


def test_packed_work_runs_as_the_work_would() -> None:
    """Packed work runs with its blobs; a pool sees the same job, label and file."""
    work = Weigh(job="j", label="a", blobs=(SMALL,))
    packed, blobs = BlobCache(Blob.of).pack(work)
    passed_on = packed_work(base_fields(work), packed, blobs)
    assert (passed_on.job, passed_on.label, passed_on.file) == ("j", "a", "film.mkv")
    assert passed_on.run(WorkContext()) == len(SMALL.content)


def test_work_that_does_not_pickle_or_unpickle_is_refused() -> None:
    """Both errors are the caller's fault."""
    with pytest.raises(UsageError, match="one cannot be pickled"):
        BlobCache(bytes).pack(Weigh(job="j", label="one", blobs=(), spare=lambda: None))
    work = works.Count(job="j", label="a")
    with pytest.raises(UsageError, match="the work cannot be unpickled on the worker: "):
        packed_work(base_fields(work), b"cno_such_module\nWork\n.", ()).run(WorkContext())
