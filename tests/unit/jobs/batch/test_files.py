"""What happens to files around a job: comparing, making room, copying."""

import errno
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet.errors import InputNotFound, InputUnreadable, OutputExists, OutputUnwritable, StorageFailed
from codecfleet.jobs.batch.files import compare, copy_whole, look_at, make_place, with_suffix_of
from codecfleet.jobs.batch.store.schema import BatchEntry, Content, EntryAction
from codecfleet.jobs.batch.store.states import EntryEvent, EntryState
from codecfleet.jobs.join.publish import work_folder

SAME, CHANGED = EntryEvent.FOUND_SAME, EntryEvent.FOUND_CHANGED


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """An input with its output below ``out``."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/film.mp4").write_bytes(b"1234")
    path = tmp_path / "film.mkv"
    path.write_bytes(b"film")
    return path


def entry_of(film: Path, *, hashed: bool = False) -> BatchEntry:
    """Return what the database has for a finished input."""
    return BatchEntry(
        entry=1,
        source=str(film),
        output="film.mp4",
        action=EntryAction.TRANSCODE,
        overrides="{}",
        tries=0,
        was_in_flight=False,
        content=look_at(str(film), hashed=hashed).content,
        source_bytes=4,
        published="film.mp4",
        output_bytes=4,
    )


def found(
    entry: BatchEntry, film: Path, state: EntryState = EntryState.DONE_BEFORE, *, hashed: bool = False
) -> EntryEvent:
    """Return what comparing finds."""
    return compare(entry, state, str(film.parent / "out"), hashed=hashed)


def test_what_was_done_stays_done_until_something_changes(film: Path) -> None:
    """A finished entry is done again if its input's size or time, or its output, has changed."""
    entry = entry_of(film)
    assert found(entry, film) is SAME
    os.utime(film, (1, 1))
    assert found(entry, film) is CHANGED
    entry = entry_of(film)
    film.write_bytes(b"films")
    assert found(entry, film) is CHANGED
    entry = entry_of(film)
    (film.parent / "out/film.mp4").unlink()
    assert found(entry, film) is CHANGED
    assert found(entry, film, EntryState.FAILED_BEFORE) is SAME  # which has no output


def test_a_hash_sees_the_content_alone(film: Path) -> None:
    """With a hash, a new time alone changes nothing, and equal size and time prove nothing."""
    entry = entry_of(film, hashed=True)
    before = film.stat()
    os.utime(film, (1, 1))
    assert found(entry, film, hashed=True) is SAME
    film.write_bytes(b"Film")
    os.utime(film, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(entry, film) is SAME
    assert found(entry, film, hashed=True) is CHANGED


def test_an_input_that_was_missing_fails_again_until_it_is_there(film: Path) -> None:
    """An input that was missing is tried again if it exists now, or if it was there before and has disappeared."""
    missing = replace(entry_of(film), content=None)
    assert found(missing, film, EntryState.FAILED_BEFORE) is CHANGED
    entry = entry_of(film)
    film.unlink()
    assert found(missing, film, EntryState.FAILED_BEFORE) is SAME
    assert found(entry, film) is CHANGED
    with pytest.raises(InputNotFound):
        look_at(str(film), hashed=False)


def test_only_what_the_batch_wrote_is_replaced(film: Path) -> None:
    """Another user's file is not replaced without ``overwrite``."""
    entry, root = entry_of(film), str(film.parent / "out")
    assert make_place(entry, root, "film.mp4", overwrite=False)
    assert not make_place(entry, root, "new/other.mp4", overwrite=False)
    assert (film.parent / "out/new").is_dir()
    (film.parent / "out/film.mp4").write_bytes(b"somebody else's")
    with pytest.raises(OutputExists, match="did not write it"):
        make_place(entry, root, "film.mp4", overwrite=False)
    assert make_place(entry, root, "film.mp4", overwrite=True)
    stopped = replace(entry, was_in_flight=True)
    assert make_place(stopped, root, "film.mp4", overwrite=False)
    (film.parent / "out/film.mkv").write_bytes(b"somebody else's")  # the name that the input's copy would have
    with pytest.raises(OutputExists, match="did not write it"):
        make_place(stopped, root, "film.mkv", overwrite=False)


def test_a_link_does_not_lead_out_of_the_root(film: Path) -> None:
    """A link out of the root, in the template or below it, is refused; links within the root are fine."""
    entry, root = entry_of(film), film.parent / "out"
    (film.parent / "elsewhere").mkdir()
    (root / "out").symlink_to(film.parent / "elsewhere")
    (root / "loop").symlink_to(root / "loop")
    (root / "real").mkdir()
    (root / "in").symlink_to(root / "real")
    for output in ("out/film.mp4", "out/new/film.mp4", "loop/film.mp4"):
        with pytest.raises(OutputUnwritable):
            make_place(entry, str(root), output, overwrite=False)
    assert list((film.parent / "elsewhere").iterdir()) == []
    assert not make_place(entry, str(root), "in/film.mp4", overwrite=False)


def test_a_copy_is_whole_and_replaces_nothing_unasked(film: Path) -> None:
    """A copy to a folder or a store is equal byte for byte, and a failed copy leaves nothing."""
    output = film.parent / "out/copy.mkv"
    assert copy_whole(str(film), str(output), overwrite=False) == 4
    assert output.read_bytes() == b"film"
    with pytest.raises(OutputExists):
        copy_whole(str(film), str(output), overwrite=False)
    with pytest.raises(InputNotFound):
        copy_whole(str(film.parent / "missing"), str(output), overwrite=True)
    assert sorted(path.name for path in output.parent.iterdir()) == ["copy.mkv", "film.mp4"]
    copy_whole(str(film), "memory://bucket/copy.mkv", overwrite=False)
    copy_whole("memory://bucket/copy.mkv", str(output.with_name("back.mkv")), overwrite=False)
    assert output.with_name("back.mkv").read_bytes() == b"film"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_a_copy_for_a_store_follows_no_link(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy for a store follows no link in the temporary folder, and only this user can read it meanwhile."""
    victim, output = film.parent / "victim", "memory://bucket/copy.mkv"
    victim.write_bytes(b"mine")
    monkeypatch.setattr(tempfile, "tempdir", str(film.parent))
    planted = work_folder(output).with_suffix(".codecfleet-copy")
    assert planted.parent == film.parent
    modes = []

    def seen(part: Path, *_: object, **__: object) -> None:
        modes.append(stat.S_IMODE(part.lstat().st_mode))

    monkeypatch.setattr("codecfleet.jobs.batch.files.publish", seen)
    fsspec.filesystem("memory").pipe_file("/bucket/film.mkv", b"film")
    for source in (str(film), "memory://bucket/film.mkv"):
        planted.symlink_to(victim)
        copy_whole(source, output, overwrite=True)
    assert (victim.read_bytes(), modes) == (b"mine", [0o600, 0o600])
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("trouble", "error", "said"),
    [
        (OSError("gone"), StorageFailed, "could not be read"),
        (PermissionError("no"), InputUnreadable, "could not be read"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StorageFailed, "no space left"),
    ],
)
def test_a_store_that_fails_does_not_blame_the_input(
    film: Path, trouble: OSError, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a missing right to read is the input's fault; after a silent store or a full disk the file is retried."""
    url, memory = "memory://bucket/a.mkv", fsspec.filesystem("memory")
    memory.pipe_file("/bucket/a.mkv", b"film")
    monkeypatch.setattr("codecfleet.actors.media.storage_retry.ATTEMPTS", 1)

    def fail(*_: object, **__: object) -> None:
        raise trouble

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "open", fail)
        patch.setattr(MemoryFileSystem, "get_file", fail)
        with pytest.raises(error, match=said):
            copy_whole(url, str(film.with_name("copy.mkv")), overwrite=False)
        if trouble.errno is None:
            with pytest.raises(error, match=said):
                look_at(url, hashed=True)
    assert look_at(url, hashed=True).content.sha256 == hashlib.sha256(b"film").hexdigest()
    memory.rm("/bucket", recursive=True)


def test_a_local_input_that_cannot_be_read_is_named(film: Path) -> None:
    """If a local input cannot be read, the error names the input and not the disk of the copy."""
    with pytest.raises(InputUnreadable, match=re.escape(str(film.parent))):
        copy_whole(str(film.parent), str(film.with_name("copy.mkv")), overwrite=False)


def test_a_copy_has_its_inputs_extension() -> None:
    """A copy has the extension of its input, whatever the template says."""
    assert with_suffix_of("/in/a.avi", "x/a.mp4") == "x/a.avi"
    assert with_suffix_of("/in/a.MP4", "x/a.mp4") == "x/a.mp4"
    assert with_suffix_of("/in/a", "x/a.mp4") == "x/a"
    assert with_suffix_of("https://host/a.mkv?key=se.cret", "x/a.mp4") == "x/a.mkv"


def test_a_remote_input_is_known_by_what_its_store_states() -> None:
    """A remote input is identified by size and modification time."""
    store = fsspec.filesystem("memory")
    store.pipe_file("/bucket/a.mkv", b"abc")
    before = look_at("memory://bucket/a.mkv", hashed=True)
    assert before.size_bytes == 3
    store.pipe_file("/bucket/a.mkv", b"abcd")
    assert not look_at("memory://bucket/a.mkv", hashed=False).content.is_that_of(
        Content(version=before.content.version, sha256=None)
    )
    store.rm("/bucket", recursive=True)
