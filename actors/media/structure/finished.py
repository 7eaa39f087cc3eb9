"""Changes to a file that its muxer has closed, which move nothing: what FFmpeg's muxers write not, or otherwise."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from .matroska import checksum, in_segment
from .sections import Read, reader_of

Change: TypeAlias = tuple[int, bytes]
"""What to write, and where in the file."""


def change_finished(path: Path, changes: Iterable[Callable[[Read], Iterable[Change]]]) -> None:
    """Make changes to a finished file; each of ``changes`` reads it as it was. Checksums of Matroska are made again."""
    finds = tuple(changes)
    if not finds:
        return
    with path.open("r+b") as file:
        read = reader_of(file)
        changed = [change for find in finds for change in find(read)]
        for place, data in changed:
            file.seek(place)
            file.write(data)
        touched = (part for part in in_segment(read) if any(part.begin <= place < part.end for place, _ in changed))
        for place, data in filter(None, [checksum(read, part) for part in touched]):
            file.seek(place)
            file.write(data)
