"""Writes files that appear complete or not at all, and survive a loss of power."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME_BYTES: Final = 200


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file, flush it and rename it into place; after an ``OSError`` no part of the file remains."""
    # The wanted name may be as long as the file system allows; the unfinished file's name is longer.
    name = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    part = path.with_name(f".{name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
        sync(part)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk, so that it survives a loss of power."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network file systems sync a folder's names together with the files in it.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(opened)
