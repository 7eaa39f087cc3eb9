"""The file that ``--report`` names. It is checked before any work, and appears only when it is complete."""

import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..actors.media.whole_file import write_whole
from ..console.output import strict_json
from ..errors import OutputUnwritable, StorageFailed, UsageError
from ..jobs.report.report import Report

_STANDARD: Final = (1, 2)


class ReportFile:
    """The file of a job's report, as a context manager around the job.

    A regular file appears complete or not at all, in place of an older file. Stdout, stderr, pipes with a reader and
    character devices are opened before the work, and receive the report as a stream.
    """

    def __init__(self, name: str | None) -> None:
        self._path = None if name is None else Path(name)
        self._stream: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None

    def check(self, *others: tuple[str, str]) -> None:
        """Make sure that the report can be written, and replaces none of ``others``, given as (description, path).

        Raises UsageError: the report would replace one of these files; OutputUnwritable: it cannot be written.
        """
        for what, other in others:
            if self._path is not None and _same_file(self._path, Path(other)):
                message = f"--report {self._path} is the same file as {what}"
                raise UsageError(message, "Give --report another name.")
        if self._path is None:
            return
        try:
            self._stream = _opened_stream(self._path)
            if self._stream is None:
                self._path = self._path.resolve()
                _check_folder(self._path)
        except OSError as error:
            message = f"--report {self._path} cannot be written: {error.strerror}"
            raise OutputUnwritable(message, "Give --report another name or folder.") from None

    def write(self, report: Report) -> None:
        """Write the report of a complete output as JSON. Raises the errors of ``write_text``."""
        if self._path is not None:
            document = strict_json(report.model_dump(mode="json"))
            text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=2)
            self.write_text(f"{text}\n", "the output is complete")

    def write_text(self, text: str, whole: str) -> None:
        """Write the text of a report; characters of names that are not valid text are escaped.

        Raises StorageFailed if the report could not be written. The message begins with ``whole``, which states that
        the job itself succeeded.
        """
        if self._path is None:
            return
        content = text.encode(errors="backslashreplace")
        try:
            if self._stream is None:
                write_whole(self._path, content)
                return
            sys.stdout.flush()
            with os.fdopen(os.dup(self._stream), "wb") as stream:
                stream.write(content)
        except OSError as error:
            message = f"{whole}, but its report {self._path} could not be written: {error.strerror}"
            raise StorageFailed(message, "Free some space, or give --report another folder.") from error


def _same_file(one: Path, other: Path) -> bool:
    with suppress(OSError):  # a path that cannot exist names no other file
        return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))
    return False


def _opened_stream(path: Path) -> int | None:
    """Return a descriptor of the stream at ``path``; None for a regular file, or if nothing exists there."""
    try:
        target = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise OutputUnwritable(f"--report {path} is a link to nothing", "Give --report another name.") from None
        return None
    for standard in _STANDARD:
        # A redirected stream that was opened by name would be overwritten from its start, so its descriptor is used.
        if os.path.samestat(target, os.fstat(standard)):
            return os.dup(standard)
    if stat.S_ISREG(target.st_mode):
        return None
    return _open_pipe_or_device(path, target.st_mode)


def _open_pipe_or_device(path: Path, mode: int) -> int:
    if stat.S_ISDIR(mode):
        raise OutputUnwritable(f"--report {path} is a folder", "Give --report a file in that folder.")
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        message = f"--report {path} is a socket or a disk; codecfleet overwrites neither"
        raise OutputUnwritable(message, "Give --report another name.")
    try:
        stream = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        reason = "nothing reads from that pipe" if stat.S_ISFIFO(mode) else error.strerror
        message = f"--report {path} cannot be written: {reason}"
        raise OutputUnwritable(message, "Start its reader first, or give --report a file's name.") from None
    os.set_blocking(stream, True)
    return stream


def _check_folder(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        message = f"--report {path}: there is no folder {folder}"
        raise OutputUnwritable(message, f"Create it: mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        message = f"--report {path}: the folder {folder} is read-only"
        raise OutputUnwritable(message, "Give --report another folder.")
