"""What the boxes of an mp4 or mov file state, read from its bytes: ISO/IEC 14496-12 by hand, with no library."""

import struct
from collections.abc import Iterator
from pathlib import Path

_PARENTS = frozenset({"moov", "trak", "mdia", "minf", "stbl", "edts", "moof", "traf", "mvex"})


def boxes(data: bytes, kind: str) -> list[bytes]:
    """Return the content of every box of a kind, in the file's order."""
    return [content for found, content in _walk(data) if found == kind]


def _walk(data: bytes) -> Iterator[tuple[str, bytes]]:
    while len(data) >= 8:
        length, kind, head = int.from_bytes(data[:4]), data[4:8].decode("latin-1"), 8
        if length == 1:
            length, head = int.from_bytes(data[8:16]), 16
        content = data[head : length or len(data)]
        yield kind, content
        if kind in _PARENTS:
            yield from _walk(content)
        data = data[length or len(data) :]


def numbers(content: bytes, form: str, at: int) -> tuple[int, ...]:
    """Return the big-endian numbers at a place of a box."""
    return struct.unpack_from(f">{form}", content, at)


class VideoTrack:
    """The boxes of the first track of a file."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()

    def first(self, kind: str) -> bytes:
        """Return the first box of a kind."""
        return boxes(self.data, kind)[0]

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The runs of ``stts``: how many samples, and how long each lasts."""
        content = self.first("stts")
        return [numbers(content, "II", 8 + 8 * n) for n in range(*numbers(content, "I", 4))]  # type: ignore[misc]

    @property
    def media(self) -> tuple[int, ...]:
        """Timescale and duration of ``mdhd``."""
        return numbers(self.first("mdhd"), "II", 12)

    @property
    def header_durations(self) -> tuple[int, int]:
        """Durations of ``tkhd`` and ``mvhd``, in the movie's ticks."""
        return numbers(self.first("tkhd"), "I", 20)[0], numbers(self.first("mvhd"), "I", 16)[0]

    @property
    def movie_timescale(self) -> int:
        """Ticks of the movie in a second."""
        return numbers(self.first("mvhd"), "I", 12)[0]

    @property
    def edits(self) -> list[tuple[int, int]]:
        """The edit list: (duration in the movie's ticks, start in the media, -1 for nothing)."""
        content = self.first("elst")
        return [numbers(content, "Ii", 8 + 12 * n) for n in range(*numbers(content, "I", 4))]  # type: ignore[misc]

    @property
    def fragments(self) -> list[tuple[int, list[int]]]:
        """The fragments of the first track: when each is decoded (``tfdt``), and its samples' durations (``trun``)."""
        found = []
        for moof in boxes(self.data, "moof"):
            traf = boxes(moof, "traf")[0]
            begin = numbers(boxes(traf, "tfdt")[0], "Q", 4)[0]
            found.append((begin, _run_durations(boxes(traf, "trun")[0], boxes(traf, "tfhd")[0])))
        return found


def _run_durations(trun: bytes, tfhd: bytes) -> list[int]:
    flags, count = int.from_bytes(trun[1:4]), numbers(trun, "I", 4)[0]
    at = 8 + 4 * (bool(flags & 1) + bool(flags & 4))
    width = 4 * sum(bool(flags & bit) for bit in (0x100, 0x200, 0x400, 0x800))
    if flags & 0x100:
        return [numbers(trun, "I", at + n * width)[0] for n in range(count)]
    stated = int.from_bytes(tfhd[1:4])
    place = 8 + 8 * bool(stated & 1) + 4 * bool(stated & 2)
    return [numbers(tfhd, "I", place)[0]] * count
