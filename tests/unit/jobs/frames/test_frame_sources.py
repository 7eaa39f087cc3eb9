"""Sources that the caller holds: bytes and open files, read by several threads and released at the end."""

import gc
import io
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import codecfleet
from codecfleet.actors.media.location import HeldSource
from codecfleet.errors import InputRefused, InputUnreadable, UsageError
from codecfleet.jobs.frames.request import FrameRequest
from codecfleet.jobs.frames.stream import FrameStream
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..frame_streams import GOPS, no_gpu, reference, source, stream, taken, told

__all__ = ["source"]

KINDS: list[Callable[[bytes], Any]] = [bytes, bytearray, lambda data: memoryview(bytearray(data)), io.BytesIO]


class WatchedFile:
    """A file with only ``read`` and ``seek``, which notes its reads and fails if two threads use it at once."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self._lock = threading.Lock()
        self.reads: list[int] = []
        self.fails_from = 1 << 62

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move."""
        assert self._lock.acquire(blocking=False)
        try:
            return self._file.seek(offset, whence)
        finally:
            self._lock.release()

    def read(self, size: int) -> bytes:
        """Read."""
        assert self._lock.acquire(blocking=False)
        try:
            self.reads.append(size)
            if self._file.tell() >= self.fails_from:
                raise RuntimeError("the tape is torn")
            return self._file.read(size)
        finally:
            self._lock.release()


def held(data: Any, **options: Any) -> FrameStream:
    """Return the frames of bytes or a file, in several short segments."""
    request = FrameRequest(source=HeldSource.of(data) or "", segment_s=Fraction(1, 3), threads=3, **options)
    return FrameStream(request, no_gpu)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_held_bytes_are_those_of_the_file(source: Path, kind: Callable[[bytes], Any]) -> None:
    """Frames of held bytes equal the file's, in order or chosen, from several segments at once."""
    whole = told(taken(stream(source)))
    with held(kind(source.read_bytes())) as film:
        assert told(list(film)) == whole
        assert film.report.segments > 2
        assert told(film.at([40, 3, 40]).read()) == [whole[40], whole[3], whole[40]]


@pytest.mark.parametrize("name", ["film.mp4", "film.avi", "film.ts", "film.h264"])
def test_every_container_is_read_from_memory(tmp_path: Path, name: str) -> None:
    """Every container is read from memory, even one whose end is examined separately or that has no index."""
    path = make_clip(tmp_path / name, Clip(times=constant_times(24), options=GOPS))
    assert told(taken(held(path.read_bytes()))) == reference(path)
    with path.open("rb") as file:
        assert told(taken(held(file))) == reference(path)


def test_a_file_is_read_in_parts_by_one_thread_at_a_time(source: Path) -> None:
    """A file at any position is read in parts, by one thread at a time, and never as a whole."""
    file = WatchedFile(source.read_bytes())
    file.seek(7)
    assert told(taken(held(file))) == reference(source)
    assert 0 <= max(file.reads) <= 1 << 18


def test_closing_lets_go_of_the_bytes(source: Path) -> None:
    """Closing releases the bytes: a bytearray can be resized afterwards, but not before."""
    data = bytearray(source.read_bytes())
    with held(data) as film:
        assert len(film) == 48
        with pytest.raises(BufferError):
            data.append(0)
    data.append(0)
    with held(data):
        pass
    data.append(0)


@pytest.mark.parametrize("count", [0, 3])
def test_forgetting_a_film_lets_go_of_its_file(source: Path, count: int) -> None:
    """A film that is dropped releases its file; neither an index nor an idle decoder keeps it."""
    file = WatchedFile(source.read_bytes())
    gone = weakref.ref(file)
    film = held(file)
    film.at(range(count)).read()
    del film, file
    gc.collect()
    assert gone() is None


def test_sources_of_one_size_are_not_mixed_up(tmp_path: Path, source: Path) -> None:
    """Two sources with the same name in messages are read separately."""
    other = make_clip(tmp_path / "other.mkv", Clip(times=constant_times(24), options=GOPS)).read_bytes()
    longer = source.read_bytes()
    other += bytes(len(longer) - len(other))
    with held(longer) as first, held(other) as second:
        assert str.__eq__(first.source, second.source)
        assert (len(first), len(second)) == (48, 24)
        assert told(first.at([0]).read()) == told(taken(stream(source)))[:1]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", InputUnreadable, "<bytes of 0> is empty"),
        (bytearray(12_345), InputUnreadable, "<bytearray of 12,345> is not a media file"),
        (io.BytesIO(b"#EXTM3U\nfilm.mkv"), InputRefused, "<BytesIO of 16> is a playlist"),
    ],
)
def test_messages_name_the_source(data: Any, error: type[Exception], message: str) -> None:
    """Messages name a source by type and size."""
    with pytest.raises(error, match=message):
        list(codecfleet.frames(data))


def test_a_file_that_fails_names_itself(source: Path) -> None:
    """If a held file fails or was closed, the error says so in one line."""
    file = WatchedFile(source.read_bytes())
    film = codecfleet.frames(file)
    file.fails_from = 1000
    with pytest.raises(InputUnreadable, match=r"<WatchedFile of .*> cannot be read: the tape is torn"):
        list(film)
    with pytest.raises(UsageError, match="cannot be read at any position: the tape is torn"):
        codecfleet.frames(file)
    with source.open("rb") as opened:
        film = codecfleet.frames(opened)
    with pytest.raises(InputUnreadable, match=r"<BufferedReader .*clip.mkv> cannot be read: .*closed file"):
        list(film)


def test_files_that_cannot_be_read_anywhere_are_refused(source: Path) -> None:
    """Pipes, text files, write-only files, bytes with gaps and other objects are refused before anything is read."""
    reads, writes = os.pipe()
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe, pytest.raises(UsageError, match="cannot seek"):
        codecfleet.frames(pipe)
    with source.open(encoding="latin-1") as text, pytest.raises(UsageError, match="reads text"):
        codecfleet.frames(text)  # type: ignore[arg-type]
    with source.with_name("new").open("wb") as written, pytest.raises(UsageError, match="any position"):
        codecfleet.frames(written)
    with pytest.raises(UsageError, match="not contiguous"):
        codecfleet.frames(memoryview(bytes(100))[::2])
    with pytest.raises(UsageError, match="not a path"):
        codecfleet.frames([])  # type: ignore[arg-type]


def test_what_another_process_can_read_is_pickled(source: Path) -> None:
    """Frames of a path or of bytes pickle with their options; with an open file, a GPU or a CUDA stream they do not."""
    whole = told(taken(stream(source)))
    for each in (str(source), source.read_bytes(), bytearray(source.read_bytes())):
        film = pickle.loads(pickle.dumps(codecfleet.frames(each, every=5, decoder="software")))  # noqa: S301 - its own
        assert told(list(film)) == whole[::5]
    with source.open("rb") as file, pytest.raises(UsageError, match="only be read in the process that created it"):
        pickle.dumps(codecfleet.frames(file))
    for film in (stream(source), codecfleet.frames(source, stream=1)):
        with pytest.raises(UsageError, match="a context of this process"):
            pickle.dumps(film)
