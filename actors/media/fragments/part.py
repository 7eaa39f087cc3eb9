"""Which part of a file a range needs."""

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..seeking import AccessPoint
from ..structure import LONG, LONG_HEAD_BYTES

if TYPE_CHECKING:
    from array import array

FILLER_BYTES: Final = LONG_HEAD_BYTES
"""What a worker's demuxer sees of the skipped fragments: the head of a box with a length of 64 bits."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that a demuxer sees."""

    skipped_bytes: tuple[int, int]
    end_bytes: int | None  # None: the file's end
    first: AccessPoint  # of the track there, or where reading begins
    mark: bytes  # its ``decoder_mark``

    @property
    def span_bytes(self) -> tuple[int, int] | None:
        """The byte range after the head; None for its end is the end of the file."""
        return None if self.end_bytes is None else (self.skipped_bytes[1], self.end_bytes)

    @property
    def filler(self) -> bytes:
        """The head of the box that replaces the skipped bytes; b"" if nothing is skipped."""
        begin, end = self.skipped_bytes
        return struct.pack(">I4sQ", LONG, b"skip", end - begin) if end > begin else b""


@dataclass(frozen=True, slots=True)
class Fragments:
    """Where the fragments of a file begin, ascending; ``head_bytes`` is how far FFmpeg read to know its tracks."""

    starts_bytes: "array[int]"
    head_bytes: int
    mark: bytes

    def part(self, span_bytes: tuple[int, int], first: AccessPoint) -> FilePart | None:
        """Return the part with the head and the packets of ``span_bytes``; None if that is the whole file."""
        starts = self.starts_bytes
        head = bisect_left(starts, self.head_bytes)
        if head == len(starts):
            return None
        begin = max(bisect_right(starts, span_bytes[0]) - 1, head)
        end = max(bisect_left(starts, span_bytes[1]), head)
        skipped = starts[head], starts[begin]
        if skipped[1] - skipped[0] < FILLER_BYTES:
            skipped = starts[head], starts[head]
        end_bytes = starts[end] if end < len(starts) else None
        return (
            None if skipped[0] == skipped[1] and end_bytes is None else FilePart(skipped, end_bytes, first, self.mark)
        )
