"""Which reader a container has."""

import struct
from contextlib import suppress

from .boxes import read_boxes
from .ebml import read_elements
from .facts import StatedFile
from .file_bytes import open_bytes


def read_stated(url: str) -> StatedFile | None:
    """Return what an mp4, mov, Matroska or WebM file states; None of any other, and of one that is too damaged.

    Raises:
        InputError: it cannot be read.
    """
    with open_bytes(url) as file:
        for read in (read_boxes, read_elements):
            # A damaged table may end anywhere.
            with suppress(struct.error, IndexError, ValueError):
                if (found := read(file)) is not None:
                    return found
    return None
