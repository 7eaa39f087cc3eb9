"""Blocks of a remote source on this machine's disk."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codecfleet.actors.media.shared_blocks import BLOCK_BYTES, HeldBlocks, SharedBlocks
from tests.flaky_storage import FlakyFileSystem

URL = "flaky://films/film.mp4"
CONTENT = bytes(range(256)) * (5 * BLOCK_BYTES // 512)
"""Two blocks and a half."""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store with the content, and a folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    FlakyFileSystem.start_over()
    FlakyFileSystem().pipe_file(URL, CONTENT)
    yield
    FlakyFileSystem.start_over()


class Fetcher:
    """Returns parts of the content, half of the requested bytes at a time, and records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, position: int, size: int) -> bytes:
        """Return the first half."""
        self.asked.append((position, size))
        return CONTENT[position : position + -(-size // 2)]


def found() -> SharedBlocks:
    """Return the existing blocks of a source."""
    blocks = SharedBlocks.find(URL)
    assert blocks is not None
    return blocks


def read_all(blocks: SharedBlocks, fetch: Fetcher, *, at_once: int = 1) -> bytes:
    """Read the whole source, from the beginning."""
    content = b""
    while part := blocks.read(len(content), 300_000, fetch, at_once=at_once):
        content += part
    return content


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_what_one_has_read_another_has(at_once: int) -> None:
    """Every reader gets the content; only the reads of the first reader reach the store, once for each byte."""
    held = HeldBlocks(URL)
    held.hold()
    first, second = found(), found()
    fetch, never = Fetcher(), Fetcher()
    assert read_all(first, fetch, at_once=at_once) == CONTENT
    assert read_all(second, never) == CONTENT
    assert never.asked == []
    got = sum(len(CONTENT[position : position + -(-size // 2)]) for position, size in fetch.asked)
    assert got == len(CONTENT)
    first.close()
    second.close()
    held.let_go()


def test_a_fetch_that_fails_leaves_no_block() -> None:
    """An incomplete block is fetched again."""
    held = HeldBlocks(URL)
    held.hold()
    blocks = found()

    def broken(_position: int, _size: int) -> bytes:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        blocks.read(0, 10, broken)
    assert blocks.read(BLOCK_BYTES, 10, lambda _position, _size: b"") == b""
    assert read_all(blocks, Fetcher()) == CONTENT
    blocks.close()
    held.let_go()


def test_the_last_job_removes_them(tmp_path: Path) -> None:
    """Two jobs share the blocks of a source, which exist until both jobs have ended."""
    jobs = HeldBlocks(URL), HeldBlocks(URL)
    for job in jobs:
        job.hold()
    jobs[0].let_go()
    found().close()
    jobs[1].let_go()
    assert SharedBlocks.find(URL) is None
    assert list(tmp_path.iterdir()) == []


def test_another_version_is_not_taken_for_it() -> None:
    """Blocks of a replaced source are not used."""
    held = HeldBlocks(URL)
    held.hold()
    FlakyFileSystem().pipe_file(URL, CONTENT[:-1] + b"x")
    assert SharedBlocks.find(URL) is None
    held.let_go()


@pytest.mark.parametrize("cut_short", [False, True], ids=["whole", "killed while it made or removed them"])
@pytest.mark.parametrize("next_source", [URL, "flaky://films/gone.mp4", "film.mp4"], ids=["same", "away", "local"])
def test_what_a_killed_job_left_is_removed(tmp_path: Path, next_source: str, *, cut_short: bool) -> None:
    """The next job removes blocks that no running job holds, whatever the job reads."""
    left = tmp_path / "left"
    held = HeldBlocks(URL)
    held.hold()
    (folder,) = tmp_path.iterdir()
    folder.rename(left)  # as if the job of these blocks had been killed
    held.let_go()
    left.rename(folder)
    if cut_short:
        (folder / "version").unlink()
    other = HeldBlocks(next_source)
    other.hold()
    assert [each.name for each in tmp_path.iterdir()] == ([folder.name] if next_source == URL else [])
    other.let_go()
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_there_is_not_looked_into(tmp_path: Path) -> None:
    """A job starts even if somebody puts a link to a folder with a pipe in the place of its blocks.

    Opening the pipe would wait for a writer.
    """
    (tmp_path / "trap").mkdir()
    os.mkfifo(tmp_path / "trap/version")
    held = HeldBlocks(URL)
    held.hold()
    (name,) = {path.name for path in tmp_path.iterdir()} - {"trap"}
    held.let_go()
    for planted in (name, f"codecfleet-{os.geteuid()}-dead.blocks"):
        (tmp_path / planted).symlink_to(tmp_path / "trap")
    held.hold()
    assert SharedBlocks.find(URL) is None
    held.let_go()
    assert (tmp_path / "trap/version").is_fifo()


def test_a_film_that_would_fill_the_disk_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks never take more than half of the free space; local sources have no blocks."""
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 2 * len(CONTENT) - 1}))
    for source in (URL, str(tmp_path / "film.mp4")):
        held = HeldBlocks(source)
        held.hold()
        held.let_go()
    assert list(tmp_path.iterdir()) == []
