"""What boxes and elements have in common."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

Read: TypeAlias = Callable[[int, int], bytes]
"""Return what lies at a position, of a size, both in bytes; less where that is not known or the file ends."""

MOST_SECTIONS: Final = 1 << 16
"""How many boxes or elements of one parent are looked at."""
NO_END: Final = 1 << 63
"""The end of a part that does not state its length, in a file whose end is not known."""


class Section(NamedTuple):
    """A box or an element: what it is called, and where it, its content and its end lie."""

    kind: bytes
    begin: int
    content: int
    end: int


class Readable(Protocol):
    """A file as FFmpeg reads it."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, nothing at the end of the file."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Go to a place; return it."""

    def tell(self) -> int:
        """Return the place."""


def reader_of(file: Readable) -> Read:
    """Return what reads an open file."""

    def read(position: int, size: int) -> bytes:
        file.seek(position)
        return file.read(size)

    return read


def first(parts: Iterable[Section], kind: bytes) -> Section | None:
    """Return the first part of a kind, None where there is none."""
    return next((part for part in parts if part.kind == kind), None)


def content(read: Read, part: Section, most: int) -> bytes:
    """Return what is in a part, ``most`` bytes of it at most."""
    return read(part.content, min(part.end - part.content, most))
