"""What reads a machine's files for the workers of others: an actor on the node of a job's driver."""

import os
from typing import Final

from ...actors.media.stores import shipped_version

READS_AT_ONCE: Final = 8
READER_PREFIX: Final = "codecfleet-files-"


class FileReader:
    """Reads files of this machine. It holds nothing between calls, so Ray may start it again at any time.

    It takes any path: who can call it can start any program on its node.

    Raises OSError of the file system's.
    """

    def info(self, path: str) -> tuple[int, str]:
        """Return a file's bytes, and what changes when it is replaced or written to."""
        found = shipped_version(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path may be no text
            return os.pread(file.fileno(), size, offset)
