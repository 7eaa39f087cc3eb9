"""The bytes of a container's header."""

from bisect import bisect_right
from typing import Final

from ..fragments import FragmentWatch

_MOST_BYTES: Final = 1 << 26
"""In a larger header, later reads are not kept."""


class HeaderWatch(FragmentWatch):
    """Keeps what is read while a file is opened, besides its notes of fragments: this includes the header."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, bytes] = {}
        self._order: list[int] = []
        self._bytes = 0

    def see(self, position: int, data: bytes) -> None:
        """Process what was read at ``position``."""
        super().see(position, data)
        if self._bytes + len(data) <= _MOST_BYTES and len(data) > len(self._kept.get(position, b"")):
            self._bytes += len(data)
            self._kept[position] = data

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes read there; fewer if some were not read."""
        if len(self._order) != len(self._kept):
            self._order = sorted(self._kept)
        starts, found = self._order, bytearray()
        while len(found) < size:
            at = position + len(found)
            place = bisect_right(starts, at) - 1
            begin = at - starts[place]
            data = self._kept[starts[place]][begin : begin + size - len(found)] if place >= 0 else b""
            if not data:
                break
            found += data
        return bytes(found)
