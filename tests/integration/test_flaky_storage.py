"""Whole jobs on a store that fails briefly, permanently, or with half an answer; and sources that change."""

import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.backoff import Backoff
from codecfleet.actors.media import storage_retry
from codecfleet.actors.media.opening import open_source
from codecfleet.errors import CodecfleetError, InputUnreadable, NotSmaller, StorageFailed, Unsupported
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.chaos.shaky_server import Mood, shaky_server
from tests.flaky_storage import FlakyFileSystem

from .local_jobs import later, spec_of, transcode

SOURCE, OUTPUT = "flaky://films/in.mp4", "flaky://films/out.mp4"


@pytest.fixture(autouse=True)
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    """A clip of four segments, in a store that is retried without pauses."""
    monkeypatch.setattr(storage_retry, "PAUSES", Backoff(0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clip = Clip(times=constant_times(80), keyframes=frozenset(range(0, 80, 20)), options=(("preset", "ultrafast"),))
    content = make_clip(tmp_path / "film.mp4", clip).read_bytes()
    FlakyFileSystem.start_over()
    FlakyFileSystem().pipe_file(SOURCE, content)
    yield content
    FlakyFileSystem.start_over()


@pytest.mark.parametrize("change", ["replaced", "cut short", "removed"])
def test_a_remote_source_that_changes_under_a_job(change: str, film: bytes) -> None:
    """The next segment's worker notices the change; a result from two versions is never published."""

    def trouble() -> None:
        store = FlakyFileSystem()
        if change == "removed":
            store.rm_file(SOURCE)
        else:
            store.pipe_file(SOURCE, film[: len(film) // 2] if change == "cut short" else film[:-1] + b"\1")

    expected = CodecfleetError if change == "removed" else InputUnreadable
    with pytest.raises(expected, match=r"there is nothing at|was changed or removed while it was read"):
        transcode(
            spec_of(SOURCE, OUTPUT, segment_s=Fraction(4, 5), scale=(640, 360), no_journal=True),
            later(trouble, after=1),
        )
    assert not FlakyFileSystem().exists(OUTPUT)


@pytest.mark.parametrize(("stated", "error"), [(("size",), NotSmaller), ((), Unsupported)])
def test_a_result_is_smaller_also_where_a_store_states_no_version(
    film: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: tuple[str, ...], error: type[CodecfleetError]
) -> None:
    """Without a version, the size is enough for ``--if-smaller``; without a size, nothing is published unchecked."""
    facts = {"name": SOURCE, "type": "file"} | dict.fromkeys(stated, len(film))
    monkeypatch.setattr(FlakyFileSystem, "info", lambda *_, **__: facts)
    with pytest.raises(error):
        transcode(spec_of(SOURCE, tmp_path / "o.mp4", quality=0, preset=1, no_journal=True, if_smaller=True))
    assert not (tmp_path / "o.mp4").exists()


def test_a_web_server_that_is_busy_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 503 that passes while the source is opened changes nothing; a permanent one is reported as the store's."""
    monkeypatch.setattr(storage_retry, "PAUSES", Backoff(0.05, 1))
    with shaky_server(tmp_path / "film.mp4") as server:
        server.be_down(0.2)
        with open_source(server.url) as container:
            assert container.streams.video[0].frames == 80
        server.mood = Mood.DOWN
        with pytest.raises(StorageFailed, match="503"), open_source(server.url):
            pass
