"""A job's work folder, where finished segments are written as soon as they arrive."""

import errno
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ...actors.media.whole_file import sync
from ...actors.segment.encoding import EncodedSegment
from ...errors import CodecfleetError, JournalRefused, OutputInUse, OutputUnwritable, StorageFailed
from .owner import FolderOwner
from .plain_files import content_of, remove_any

JOURNAL_FILE: Final = "journal"
PAYLOAD_PREFIX: Final = "segment-"
_EMPTY = np.empty(0, dtype=np.uint8)
RENDITIONS: Final = "renditions"  #: The folder of a ladder's finished and unfinished renditions
PUBLISHED: Final = "published.json"  #: The record of what a job without a journal publishes
#: Prefixes of the names of files that hold a job's work
_WORK: Final = (JOURNAL_FILE, PAYLOAD_PREFIX, RENDITIONS, PUBLISHED)
#: Prefixes of the names of all of a job's files
_WRITTEN: Final = (*_WORK, "output.", "package", "replaced", "stills", "tensor")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DIGITS = 16  #: How many digits of a payload's SHA-256 are in its file's name; the whole digest is checked


@dataclass(frozen=True, slots=True, eq=False)
class SpooledSegment:
    """An encoded segment whose payload is in a file. ``facts`` is the segment without its payload."""

    facts: EncodedSegment
    path: Path
    payload_bytes: int
    payload_sha256: str

    def payload(self) -> bytes:
        """Read the payload back, and check it. Raises StorageFailed: the payload cannot be read, or has changed."""
        try:
            data = content_of(self.path, self.payload_bytes)
        except OSError as error:
            raise storage_error(error, self.path) from error
        if data is None or hashlib.sha256(data).hexdigest() != self.payload_sha256:
            raise StorageFailed(f"{self.path} has changed since it was written", "Check the disk; start the job again.")
        return data


class Spool:
    """The work folder of one job, beside the output, so that publishing is a rename on one file system.

    ``payloads`` is an existing folder for payloads, if they are stored elsewhere. With ``is_durable``, payloads survive
    a power loss.
    """

    def __init__(self, folder: Path, output: str, *, payloads: Path | None = None, is_durable: bool = False) -> None:
        self.folder = folder
        self.payloads = payloads or folder
        self._output = output
        self._is_durable = is_durable
        self._owner = FolderOwner(folder, output)

    def open(self, *, continues: bool = False, discards: bool = False) -> None:
        """Create the folder, or take over the folder of a dead job.

        With ``continues``, the dead job's work is kept; with ``discards``, it is deleted.

        Raises:
            JournalRefused: the dead job could be continued, but neither option was given.
            OutputInUse: another job writes the same output.
            OutputUnwritable: the folder cannot be created.
            StorageFailed: there is no space left.
        """
        try:
            self._owner.acquire()
            if not continues and not discards:
                self._check_nothing_waits()
            self.clear(all_but_work=continues and not discards)
        except OSError as error:
            self._owner.release()
            raise unwritable(error, self.folder.parent) from error
        except BaseException:  # on any error, the folder is released
            self._owner.release()
            raise

    def check(self) -> None:
        """Raise OutputInUse if another job has taken the folder over while this process was suspended."""
        if not self._owner.holds():
            message = f"this job has lost {self.folder}: it was removed, or another job has taken it over"
            raise OutputInUse(message, "Nothing was published. Wait for the other job, or start again.")

    def put(self, segment: EncodedSegment) -> SpooledSegment:
        """Write a segment's payload into a file named after its number and digest. Raises StorageFailed."""
        digest = hashlib.sha256(segment.payload.data).hexdigest()
        path = self.payloads / payload_name(segment.segment, digest)
        try:
            with path.open("wb") as stream:
                stream.write(segment.payload.data)
            if self._is_durable:
                sync(path)
        except OSError as error:
            raise storage_error(error, path) from error
        # Copy the arrays, which are views that would keep the whole result in memory.
        facts = replace(
            segment,
            payload=_EMPTY,
            pts_ticks=segment.pts_ticks.copy(),
            sizes_bytes=segment.sizes_bytes.copy(),
            keyframes=segment.keyframes.copy(),
        )
        return SpooledSegment(facts, path, segment.payload.nbytes, digest)

    def drop(self, segment: SpooledSegment) -> None:
        """Delete a payload that is no longer needed."""
        segment.path.unlink(missing_ok=True)

    def clear(self, *, all_but_work: bool = False) -> None:
        """Delete the job's files: all, or all but its work. Other files stay. Raises OSError."""
        for path in self.folder.iterdir():
            if path.name.startswith(_WRITTEN) and not (all_but_work and path.name.startswith(_WORK)):
                remove_any(path)

    def keep(self) -> None:
        """Release the folder, but keep the job's work. Never raises."""
        if self._owner.holds():
            with suppress(OSError):
                self.clear(all_but_work=True)
        self._owner.release()

    def remove(self) -> None:
        """Delete all files of the job, and then the folder if it is empty. Never raises."""
        if self._owner.holds():
            with suppress(OSError):
                self.clear()
            self._owner.remove()
        self._owner.release()

    def _check_nothing_waits(self) -> None:
        if (self.folder / JOURNAL_FILE).exists():
            message = f"{self._output} has an unfinished job in {self.folder}"
            step = "Continue that job with `codecfleet resume`, or remove it with `codecfleet jobs clean`"
            raise JournalRefused(message, f"{step}: docs/reliability.md.")


def payload_name(segment: int, sha256: str) -> str:
    """Return the name of the file that holds a segment's payload."""
    return f"{PAYLOAD_PREFIX}{segment:06d}-{sha256[:_DIGITS]}.bin"


def unwritable(error: OSError, folder: Path) -> CodecfleetError:
    """Return codecfleet's error for an operating system's error on creating something in ``folder``."""
    if error.errno in _FULL:
        return storage_error(error, folder)
    message = f"{folder} cannot be written: {error.strerror}"
    return OutputUnwritable(message, "Choose another output folder or change its permissions.")


def storage_error(error: OSError, path: Path | str) -> StorageFailed:
    """Return codecfleet's error for an operating system's error at ``path``."""
    if error.errno in _FULL:
        step = "Free some space, or choose another output folder; for a remote output, another TMPDIR."
        return StorageFailed(f"no space left at {path}", step)
    message = f"{path} failed: {error.strerror or os.strerror(error.errno or 0)}"
    return StorageFailed(message, "Check the disk or the network share, then start the job again.")
