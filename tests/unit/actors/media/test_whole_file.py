"""Files that appear complete or not at all."""

import errno
import os
from pathlib import Path

import pytest

from codecfleet.actors.media.whole_file import sync, write_whole


def test_a_file_is_written_and_replaces_an_older_one(tmp_path: Path) -> None:
    """The new content replaces the old, with the permissions of the umask."""
    path = tmp_path / "report.json"
    for content in (b"older and longer", b"new"):
        write_whole(path, content)
        assert path.read_bytes() == content
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If flushing or renaming fails, the older file is unchanged and no other file is left."""
    path = tmp_path / "report.json"
    path.write_bytes(b"older")

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    monkeypatch.undo()
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder, b"new")
    assert path.read_bytes() == b"older"
    assert sorted(tmp_path.iterdir()) == [folder, path]


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that a network file system cannot sync are no error; files that cannot be synced are an error."""
    path = tmp_path / "file"
    path.touch()

    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    sync(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        sync(path)
