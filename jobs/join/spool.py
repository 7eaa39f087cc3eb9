"""Finished segments on disk: payloads leave memory as soon as they arrive."""

import errno
import hashlib
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...actors.segment.encoding import EncodedSegment
from ...errors import OutputUnwritable, StorageFailed

_EMPTY = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class SpooledSegment:
    """An encoded segment whose payload lies in a file; ``facts`` is the segment with its payload taken out."""

    facts: EncodedSegment
    path: Path
    payload_bytes: int
    payload_sha256: str

    def payload(self) -> bytes:
        """Read the payload back, checked.

        Raises:
            StorageFailed: it cannot be read, or is not what was written.
        """
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise storage_error(error, self.path) from error
        if hashlib.sha256(data).hexdigest() != self.payload_sha256:
            raise StorageFailed(f"{self.path} is not what was written there", "Check the disk; start the job again.")
        return data


class Spool:
    """The work folder of one job. It lies beside the output, so that publishing is a rename on one file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Create the folder.

        Raises:
            OutputUnwritable: it cannot be created.
        """
        try:
            self.folder.mkdir(parents=False, exist_ok=False)
        except OSError as error:
            message = f"{self.folder.parent} cannot be written: {error.strerror}"
            raise OutputUnwritable(message, "Choose another output folder or change its permissions.") from error

    def put(self, segment: EncodedSegment, run: int) -> SpooledSegment:
        """Write a segment's payload; a segment that ran again replaces nothing, it has a file of its own.

        Raises:
            StorageFailed: it cannot be written (the disk is full, say).
        """
        path = self.folder / f"segment-{segment.segment:06d}-{run}.bin"
        try:
            with path.open("wb") as stream:
                stream.write(segment.payload.data)
        except OSError as error:
            raise storage_error(error, path) from error
        # Copies: as they came, the arrays are views that keep the whole result in memory.
        facts = replace(
            segment,
            payload=_EMPTY,
            pts_ticks=segment.pts_ticks.copy(),
            sizes_bytes=segment.sizes_bytes.copy(),
            keyframes=segment.keyframes.copy(),
        )
        digest = hashlib.sha256(segment.payload.data).hexdigest()
        return SpooledSegment(facts, path, segment.payload.nbytes, digest)

    def drop(self, segment: SpooledSegment) -> None:
        """Delete a payload that is no longer needed."""
        segment.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder and everything in it; never raises."""
        shutil.rmtree(self.folder, ignore_errors=True)


def storage_error(error: OSError, path: Path | str) -> StorageFailed:
    """Map an operating system's error at ``path`` to one that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"no space left at {path}"
        return StorageFailed(message, "Free some space or choose another output folder.")
    message = f"{path} failed: {error.strerror or os.strerror(error.errno or 0)}"
    return StorageFailed(message, "Check the disk or the network share, then start the job again.")
