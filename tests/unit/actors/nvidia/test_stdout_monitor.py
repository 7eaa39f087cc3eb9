"""Wrong pictures are counted from a file descriptor's text, and every byte of the text is passed on."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.stdout_monitor import StdoutTap, wrong_picture_counter

LINE = b"Decode Error occurred for picture 7\n"


@contextmanager
def _listening() -> Iterator[tuple[int, int, StdoutTap]]:
    """Yield a file, a descriptor that writes to it, and the monitor of that descriptor."""
    file = os.memfd_create("spoken")
    speaker = os.dup(file)
    tap = StdoutTap(speaker)
    try:
        yield file, speaker, tap
    finally:
        tap.close()
        os.close(speaker)
        os.close(file)


def _content(file: int) -> bytes:
    return os.pread(file, 1 << 22, 0)


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=6), st.sampled_from([LINE, LINE[:9], LINE[9:21], LINE[:20], LINE[20:], b"D", b" "])
        ),
        max_size=12,
    ),
    asks=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_a_line_in_pieces_counts_once(pieces: list[bytes], asks: list[bool]) -> None:
    """However a line is split, and whenever the count is read, the line counts once, and all bytes pass in order."""
    with _listening() as (file, speaker, tap):
        counts = []
        for piece, asked in zip(pieces, asks, strict=False):
            os.write(speaker, piece)
            if asked:
                counts.append(tap.count())
        said = b"".join(pieces)
        assert tap.count() == said.count(b"Decode Error occurred")
        assert counts == sorted(counts)
        assert _content(file) == said


def test_more_than_one_read_is_passed_on() -> None:
    """Long output is read in parts; a line across two parts counts once."""
    with _listening() as (file, speaker, tap):
        long = b"x" * ((1 << 16) - 10) + LINE + b"y" * (1 << 17)
        os.write(speaker, long)
        assert tap.count() == 1
        assert _content(file) == long


def test_closing_gives_the_descriptor_back() -> None:
    """Closing passes on the remaining text and restores the descriptor; closing again changes nothing."""
    with _listening() as (file, speaker, tap):
        os.write(speaker, LINE)
        tap.close()
        os.write(speaker, b"after\n")
        tap.close()
        assert _content(file) == LINE + b"after\n"
        assert tap.count() == 1


@pytest.mark.parametrize("statement", ["print('bye', flush=True)", "libc.puts(b'bye')", "os.write(1, b'bye\\n')"])
def test_a_process_says_its_last_words(statement: str) -> None:
    """The last text of Python, C or the kernel reaches the real standard output when the process ends."""
    code = (
        "import ctypes, os\n"
        "from codecfleet.actors.nvidia.stdout_monitor import StdoutTap\n"
        "libc = ctypes.CDLL(None)\n"
        "tap = StdoutTap()\n"
        f"libc.puts({LINE.strip()!r})\n"
        "assert tap.count() == 1\n"
        f"{statement}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == LINE + b"bye\n"


def test_threads_that_count_first_at_once_have_one_listener() -> None:
    """The first of two monitors would read nothing, and report every picture as right."""
    with _listening() as (_, speaker, only):
        made: list[StdoutTap] = []
        is_opening, may_open = threading.Event(), threading.Event()

        def listen() -> StdoutTap:
            made.append(only)
            is_opening.set()
            may_open.wait(10)
            return only

        count = wrong_picture_counter(listen)
        with ThreadPoolExecutor(4) as threads:
            first = threads.submit(count)
            assert is_opening.wait(10)
            others = [threads.submit(count) for _ in range(3)]
            os.write(speaker, LINE)
            may_open.set()
            assert [each.result(10) for each in (first, *others)] == [1] * 4
        assert len(made) == 1


def test_what_was_passed_on_takes_no_memory() -> None:
    """Hours of output while decoding, for example of raw video, do not fill the memory."""
    with _listening() as (_, speaker, tap):
        for _ in range(20):
            os.write(speaker, LINE + b"x" * (1 << 20))
            tap.count()
            assert os.fstat(speaker).st_blocks * 512 <= 1 << 16
        assert tap.count() == 20


def test_a_reader_who_is_slow_gets_everything() -> None:
    """A non-blocking pipe with a slow reader loses nothing and raises nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    said = LINE + b"x" * (1 << 18)
    tap = StdoutTap(writer)
    os.write(writer, said)
    with ThreadPoolExecutor(1) as threads, os.fdopen(reader, "rb") as file:
        counted = threads.submit(tap.count)
        assert file.read(len(said)) == said
        assert counted.result(10) == 1
        tap.close()
        os.close(writer)


def test_counting_does_not_wait_for_a_reader_of_standard_input() -> None:
    """C locks a stream while it reads from the stream, as ``input`` does; counting does not wait for such a stream."""
    libc = ctypes.CDLL(None)
    stdin = ctypes.c_void_p.in_dll(libc, "stdin")
    reads, has_read = threading.Event(), threading.Event()

    def read() -> None:
        libc.flockfile(stdin)
        reads.set()
        has_read.wait(30)
        libc.funlockfile(stdin)

    with _listening() as (_, speaker, tap), ThreadPoolExecutor(2) as threads:
        reading = threads.submit(read)
        assert reads.wait(10)
        os.write(speaker, LINE)
        try:
            assert threads.submit(tap.count).result(10) == 1
        finally:
            has_read.set()
            reading.result(10)


def test_of_a_user_s_program_only_what_c_prints_is_read() -> None:
    """Output of Python and the kernel appears at once; C's output appears when it is counted."""
    code = (
        "import ctypes, os\n"
        "from codecfleet.actors.nvidia.stdout_monitor import CStdoutTap, wrong_picture_counter\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.printf(b'first\\n')\n"
        "count = wrong_picture_counter(CStdoutTap)\n"
        "counts = [count()]\n"
        f"libc.printf({LINE!r})\n"
        "print('python', flush=True)\n"
        "os.write(1, b'kernel\\n')\n"
        "counts.append(count())\n"
        "libc.printf(b'last\\n')\n"
        "print(*counts, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"first\npython\nkernel\n" + LINE + b"0 1\nlast\n"
