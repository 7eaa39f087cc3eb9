"""Runs one command on a bad input and checks its end; also builds bad inputs."""

import os
import struct
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from codecfleet import Fleet
from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

ERROR = "codecfleet: error: "


QUICK = ("--preset", "1")


LIMIT_S = 20


ON_THREADS = Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))


Build = Callable[[Path, Path], Path]
"""Makes a bad source out of a folder and a good clip, and returns it."""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid mp4 of one second with its header at the end."""
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", tiny())


@pytest.fixture(scope="module")
def matroska(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in Matroska."""
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mkv", tiny())


def tiny() -> Clip:
    """Return 25 small pictures with three access points."""
    return Clip(times=constant_times(25), keyframes=frozenset({0, 10, 20}), options=(("preset", "ultrafast"),))


class Attack:
    """Runs the program on threads of this process, and checks the form of every failure."""

    def __init__(self, folder: Path, said: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.out.mkdir()
        self._said = said

    def transcodes(self, source: object, output: object | None = None, *options: str) -> None:
        """Transcode successfully, and make sure that the output is left alone."""
        before = self._everything()
        target = self.out / "o.mp4" if output is None else output
        code = run(["transcode", "--quiet", *QUICK, *options, "--", str(source), str(target)], ON_THREADS)
        assert (code, self._said.readouterr().err) == (0, "")
        assert len(self._everything() - before) == ("://" not in str(target) or "file:" in str(target))

    def refused(self, code: int, *words: str, arguments: list[object]) -> str:
        """Run a command that must fail with ``code`` and one line that contains ``words``; return the line."""
        before = self._everything()
        ended = run([str(argument) for argument in arguments], ON_THREADS)
        lines = self._said.readouterr().err.splitlines()
        errors = [line for line in lines if line.startswith(ERROR)]
        assert (ended, len(errors), lines[-1:]) == (code, 1, errors), lines
        assert not [line for line in lines if not line.startswith("codecfleet: ")]
        assert not [word for word in words if word not in errors[0]], errors
        # One sentence says what is wrong, another what to do.
        assert errors[0].count(". ") >= 1
        assert self._everything() == before
        return errors[0]

    def source_refused(self, code: int, *words: str, source: object, options: tuple[str, ...] = ()) -> str:
        """Transcode a source that must be refused."""
        return self.refused(code, *words, arguments=["transcode", source, self.out / "o.mp4", *QUICK, *options])

    def _everything(self) -> set[Path]:
        return set(self.folder.rglob("*"))


@pytest.fixture
def attack(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Attack:
    """The program in an empty folder; work on remote outputs is kept in another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    return Attack(tmp_path, capsys)


def put(path: Path, data: bytes | str) -> Path:
    """Write ``data``, and return the path."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def start_of(bytes_: int, of: str = "clip.mp4") -> Build:
    """Return a builder that cuts a clip after a number of bytes."""
    return lambda folder, clip: put(folder / f"cut{Path(of).suffix}", clip.with_name(of).read_bytes()[:bytes_])


def with_bytes(old: bytes, new: bytes) -> Build:
    """Return a builder that replaces some bytes of the clip."""
    return lambda folder, clip: put(folder / "patched.mp4", clip.read_bytes().replace(old, new))


def link(target: str) -> Build:
    """Return a builder of a symbolic link."""

    def build(folder: Path, _clip: Path) -> Path:
        (folder / "link.mp4").symlink_to(target)
        return folder / "link.mp4"

    return build


def pipe(folder: Path, _clip: Path) -> Path:
    """Make a pipe without a writer."""
    os.mkfifo(folder / "pipe.mp4")
    return folder / "pipe.mp4"


def zeros(folder: Path, _clip: Path) -> Path:
    """Make a terabyte of zeros that takes no space."""
    with (folder / "zeros.mp4").open("wb") as stream:
        stream.truncate(1 << 40)
    return folder / "zeros.mp4"


def noise(folder: Path, _clip: Path) -> Path:
    """Make 100 kB of noise."""
    return put(folder / "noise.mp4", np.random.default_rng(1).bytes(100_000))


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A pipe without a writer: opening it for reading would hang the test."""
    os.mkfifo(tmp_path / "trap.mp4")
    return tmp_path / "trap.mp4"


def box(kind: bytes, body: bytes) -> bytes:
    """Return an mp4 box."""
    return struct.pack(">I", len(body) + 8) + kind + body


def with_box(data: bytes, path: list[bytes], body: bytes) -> bytes:
    """Return an mp4 in which the box at ``path`` has another body."""
    out, place = b"", 0
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        inner = data[place + 8 : place + size]
        if kind == path[0]:
            inner = body if len(path) == 1 else with_box(inner, path[1:], body)
        out, place = out + box(kind, inner), place + size
    return out


def alias(path: Path) -> bytes:
    """Return a QuickTime alias record of a file one folder level away, by absolute path."""
    head = b"\0" * 6 + struct.pack(">H", 200) + b"\2\0" + b"\3" + b"vol".ljust(27, b"\0") + b"\0" * 12
    name = path.name.encode()
    middle = bytes([len(name)]) + name.ljust(63, b"\0") + b"\0" * 16 + struct.pack(">HH", 1, 1) + b"\0" * 16
    full = str(path).encode()
    return head + middle + struct.pack(">HH", 2, len(full)) + full + b"\0" * (len(full) % 2) + b"\xff\xff\0\0"


# --- Sizes ---


def still(path: Path, width: int, height: int, frames: int = 3) -> Path:
    """Write a lossless clip of grey pictures of any size."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "gray"
        for number in range(frames):
            frame = VideoFrame.from_ndarray(np.full((height, width), 40 * number, np.uint8), format="gray")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path
