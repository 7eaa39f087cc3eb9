"""Blocks of a remote source on this machine's disk, so that passes and workers fetch nothing twice.

The job's program makes and removes the blocks; other processes of the same user find them by the source's address.
"""

import fcntl
import hashlib
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from ..closing import undone_by
from .location import is_local
from .stores import remote_version

BLOCK_BYTES: Final = 1 << 20
MOST_AT_ONCE: Final = 8
"""How many blocks one request asks for when a source is read sequentially."""
_SUFFIX: Final = ".blocks"
_DATA, _MARKS, _VERSION = "data", "marks", "version"
_MARK_DIGITS: Final = 16


class SharedBlocks:
    """The blocks of one version of one source, open in this process. Thread-safe. ``OSError`` if opening fails."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._data = os.open(folder / _DATA, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        with undone_by(lambda: os.close(self._data)):
            marks = os.open(folder / _MARKS, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                self._marks = mmap.mmap(marks, _block_count(size_bytes))
            finally:
                os.close(marks)

    @classmethod
    def find(cls, url: str) -> Self | None:
        """Return the blocks that a job on this machine made for the current version at ``url``, or None."""
        folder = _folder(url)
        try:
            if not _is_ours(folder):
                return None
            version = remote_version(url)
            if version is None or (folder / _VERSION).read_text() != repr(version):
                return None
            return cls(folder, version[0] or 0)
        except OSError:
            return None

    def close(self) -> None:
        """Close the files of the blocks, which stay on the disk."""
        self._marks.close()
        os.close(self._data)

    def read(self, position: int, size: int, fetch: Callable[[int, int], bytes], *, at_once: int = 1) -> bytes:
        """Return up to ``size`` bytes from ``position``, at least one byte before the end of the source.

        Missing bytes come from ``fetch(position, size)``, which may return fewer bytes; a call asks for at most
        ``at_once`` blocks.
        """
        if position >= self._size_bytes:
            return b""
        first = position // BLOCK_BYTES
        last = (min(position + size, self._size_bytes) - 1) // BLOCK_BYTES
        here = self._run(first, last, marked=True)
        if here:
            return os.pread(self._data, min(size, (first + here) * BLOCK_BYTES - position), position)
        missing = self._run(first, min(first + at_once, len(self._marks)) - 1, marked=False)
        begin = first * BLOCK_BYTES
        content = _whole(fetch, begin, min(missing * BLOCK_BYTES, self._size_bytes - begin))
        self._keep(first, content)
        return content[position - begin : position - begin + size]

    def _run(self, first: int, last: int, *, marked: bool) -> int:
        """Return how many consecutive blocks from ``first`` to ``last`` are held (if ``marked``) or missing."""
        count = 0
        while first + count <= last and bool(self._marks[first + count]) is marked:
            count += 1
        return count

    def _keep(self, first: int, content: bytes) -> None:
        begin = first * BLOCK_BYTES
        with suppress(OSError):  # if the disk is full, the block will be fetched again
            if os.pwrite(self._data, content, begin) == len(content):
                whole = len(content) // BLOCK_BYTES + (begin + len(content) == self._size_bytes)
                count = min(whole, _block_count(len(content)))
                self._marks[first : first + count] = b"\1" * count


def _whole(fetch: Callable[[int, int], bytes], position: int, size: int) -> bytes:
    content = fetch(position, size)
    while len(content) < size and (more := fetch(position + len(content), size - len(content))):
        content += more
    return content


class HeldBlocks:
    """A job's hold on the blocks of a remote source.

    There are no blocks for a local source, a source without a stated version, or a source that would fill more than
    half of the free space in ``TMPDIR``. Jobs that read the same version at the same time share the blocks.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._held: int | None = None

    def hold(self) -> None:
        """Make the blocks, or share those of another job; remove the blocks of killed jobs."""
        with suppress(OSError):
            _remove_left()
        version = None if is_local(self._source) else remote_version(self._source)
        if version is None or not version[0]:
            return
        with suppress(OSError):  # without blocks, every pass fetches the source again
            folder = _folder(self._source)
            if os.path.lexists(folder):
                self._held = _join(folder) if _is_ours(folder) else None
            elif 2 * version[0] <= shutil.disk_usage(folder.parent).free:
                self._held = _make(folder, version[0], repr(version))

    def let_go(self) -> None:
        """Remove the blocks, unless another job holds them too."""
        if self._held is not None:
            _let_go(_folder(self._source), self._held)
            self._held = None


@contextmanager
def blocks_held(*sources: str) -> Iterator[None]:
    """Hold the blocks of these sources, for a job that reads the sources several times."""
    held = [HeldBlocks(source) for source in sources]
    try:
        for blocks in held:
            blocks.hold()
        yield
    finally:
        for blocks in held:
            blocks.let_go()


def _make(folder: Path, size_bytes: int, version: str) -> int:
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.stem}-", suffix=_SUFFIX))
    held = _join(unfinished)
    with undone_by(lambda: _let_go(unfinished, held)):
        with (unfinished / _DATA).open("wb") as data:
            data.truncate(size_bytes)
        with (unfinished / _MARKS).open("wb") as marks:
            marks.truncate(_block_count(size_bytes))
        (unfinished / _VERSION).write_text(version)
    try:
        unfinished.rename(folder)
    except OSError:  # another job was faster
        _let_go(unfinished, held)
        return _join(folder)
    return held


def _join(folder: Path) -> int:
    held = _opened(folder)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def _opened(folder: Path) -> int:
    """Open a folder, whose lock says whether a job holds it: the kernel lets go of a killed job's lock."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _let_go(folder: Path, held: int) -> None:
    """Remove the blocks, unless another job holds them too."""
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If another job has since made blocks under the same name, those blocks are left to that job.
        if os.path.samestat(os.fstat(held), folder.lstat()):
            shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*{_SUFFIX}"):
        with suppress(OSError):
            if _is_ours(folder):
                _let_go(folder, _opened(folder))


def _is_ours(folder: Path) -> bool:
    """Return whether a path in ``TMPDIR`` is this user's own folder; anything else could make a reader wait or err."""
    found = folder.lstat()
    return found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)


def _folder(url: str) -> Path:
    mark = hashlib.sha256(os.fsencode(url)).hexdigest()[:_MARK_DIGITS]
    return Path(tempfile.gettempdir()) / f"{_prefix()}{mark}{_SUFFIX}"


def _prefix() -> str:
    return f"codecfleet-{os.geteuid()}-"


def _block_count(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES)
