"""A file that grows: when it has ended, and reads that wait."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from codecfleet.errors import InputUnreadable
from codecfleet.jobs.follow.growing import FileState, GrowingEnd, GrowingFile, Growth, refuse_late_index

PATH = Path("recording.ts")
ONE = (1, 1)


def test_is_over_once_it_was_quiet_for_long_enough() -> None:
    """The quiet time counts from the last growth."""
    seen = Growth(FileState(ONE, 10), 0)
    seen = seen.seen(PATH, FileState(ONE, 10), 4, 5)
    assert not seen.is_over
    seen = seen.seen(PATH, FileState(ONE, 11), 5, 5)  # it grows just in time
    assert not seen.seen(PATH, FileState(ONE, 11), 9, 5).is_over
    assert seen.seen(PATH, FileState(ONE, 11), 10, 5).is_over


@pytest.mark.parametrize("now", [FileState(ONE, 9), FileState((1, 2), 20)])
def test_a_recorder_that_starts_again_is_an_error(now: FileState) -> None:
    """A shorter file, or another one, cannot be followed."""
    with pytest.raises(InputUnreadable):
        Growth(FileState(ONE, 10), 0).seen(PATH, now, 1, 5)


def test_reads_wait_for_more_and_end_where_the_file_ends(tmp_path: Path) -> None:
    """A reader gets each byte once."""
    path, end = tmp_path / "grows", GrowingEnd(3)
    path.write_bytes(b"one")
    file, found = GrowingFile(path, end), list[bytes]()

    def read() -> None:
        while data := file.read(64):
            found.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with path.open("ab") as more:
        more.write(b"two, and what came after the end")
    end.seen_bytes = 6
    end.is_final = True
    reader.join(10)
    file.close()
    assert not reader.is_alive()
    assert b"".join(found) == b"onetwo"


def _box(kind: bytes, content: bytes = b"") -> bytes:
    return (8 + len(content)).to_bytes(4) + kind + content


def _look(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with closing(GrowingFile(path, GrowingEnd(len(data), is_final=True))) as file:
        refuse_late_index(file)


def test_an_index_after_the_content_is_refused(tmp_path: Path) -> None:
    """Only such an mp4 is refused."""
    with pytest.raises(InputUnreadable):
        _look(tmp_path / "late.mp4", _box(b"ftyp") + _box(b"free") + _box(b"mdat", bytes(99)))
    _look(tmp_path / "early.mp4", _box(b"ftyp") + _box(b"moov") + _box(b"mdat", bytes(99)))
    _look(tmp_path / "other.ts", bytes([0x47]) * 376)
