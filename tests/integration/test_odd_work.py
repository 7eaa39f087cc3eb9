"""Work folders that have pipes, links, folders or sparse files under the names that jobs use."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codecfleet.jobs.journal.found_work import find_work, remove_work
from tests.sweeps import swept

from .local_jobs import film, transcode
from .test_resume import a_spec, interrupted, the_same

__all__ = ["film"]


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "something").write_bytes(b"x")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "folder": _folder,
    "dangling": lambda path: path.symlink_to("nowhere"),
    "sparse": _sparse,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}


@pytest.mark.parametrize("kind", swept(KINDS))
def test_odd_payloads_are_done_again(kind: str, film: Path) -> None:
    """Only segments with odd payloads are encoded again; the other payloads are used."""
    whole = transcode(a_spec(film, "whole.mp4"))
    interrupted(a_spec(film))
    folder = film.parents[1] / "out/.o.mp4.codecfleet"
    first, second, *others = sorted(folder.glob("segment-*"))
    for path in (first, second, folder / "output.mp4"):
        path.unlink(missing_ok=True)
        KINDS[kind](path)
    (found,) = find_work(str(folder.parent))
    assert found.found.segments_done == 2 + len(others)
    again = transcode(a_spec(film))
    assert the_same(again, whole)
    assert again.resumed is not None
    assert again.resumed.restored == len(others)
    assert not folder.exists()


@pytest.mark.parametrize("kind", swept(KINDS))
@pytest.mark.parametrize("name", ["journal", "owner"])
def test_an_odd_journal_or_owner_is_replaced(name: str, kind: str, film: Path) -> None:
    """Work without a journal starts again; an odd owner file names no process."""
    folder = film.parents[1] / "out/.o.mp4.codecfleet"
    folder.mkdir(parents=True)
    KINDS[kind](folder / name)
    (found,) = find_work(str(folder.parent))
    assert (found.owner, found.found.segments_done) == (None, 0)
    transcode(a_spec(film))
    assert [path.name for path in folder.parent.iterdir()] == ["o.mp4"]


@pytest.mark.parametrize("work", [None, "elsewhere"])
def test_files_of_others_stay(work: str | None, film: Path) -> None:
    """A job removes the files that jobs write, and its folder only if that is then empty."""
    options = {} if work is None else {"work": str(film.parents[1] / work)}
    interrupted(a_spec(film, **options))
    (folder,) = [path for path in film.parents[1].rglob("*.codecfleet") if (path / "journal").exists()]
    (folder / "notes.txt").write_bytes(b"mine")
    (folder / "mine").mkdir()
    transcode(a_spec(film, **options))
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "notes.txt"]
    assert (folder / "notes.txt").read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everything")
@pytest.mark.parametrize("hidden", ["", "journal"])
def test_another_users_work_hides_nothing_else(hidden: str, tmp_path: Path) -> None:
    """Another user's work is listed as unreadable, and ``clean`` continues with this user's work."""
    others, own = tmp_path / ".a.mp4.codecfleet", tmp_path / ".b.mp4.codecfleet"
    for folder in (others, own):
        folder.mkdir()
        (folder / "journal").write_bytes(b"")
    (others / hidden).chmod(0)
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    program = [*plain, sys.executable, "-P", "-m", "codecfleet", "jobs", "unfinished", "--json", str(tmp_path)]
    listed = subprocess.run(program, capture_output=True, text=True, check=False)
    assert listed.returncode == 0
    assert [each["state"] for each in json.loads(listed.stdout)["jobs"]] == ["unreadable", "useless"]
    (others / hidden).chmod(0o755)


def test_clean_passes_by_what_it_may_not_remove(tmp_path: Path) -> None:
    """In a folder where everybody may write, ``clean`` leaves another user's work and removes this user's."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    others, own = folder / ".a.mp4.codecfleet", folder / ".b.mp4.codecfleet"
    others.symlink_to(tmp_path)  # Another user may not remove this user's folder either.
    own.mkdir()
    assert remove_work(str(folder)) == ([str(own)], [str(others)])
    assert not own.exists()
    assert others.is_symlink()
