"""What a hostile user can hand over: each case ends with one clear line, the right exit code, and nothing left."""

import http.server
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import fsspec
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet import Fleet
from codecfleet.actors import opening
from codecfleet.cli import run
from codecfleet.cli_services import Services
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

pytestmark = pytest.mark.timeout(60)

ERROR = "codecfleet: error: "
QUICK = ("--preset", "1")
LIMIT_S = 20
ON_THREADS = Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))

Build = Callable[[Path, Path], Path]
"""Makes a bad source out of a folder and a good clip, and returns it."""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good mp4 of one second, its header at the end."""
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", tiny())


@pytest.fixture(scope="module")
def matroska(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in Matroska."""
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mkv", tiny())


def tiny() -> Clip:
    """Return 25 small pictures with three access points."""
    return Clip(times=constant_times(25), keyframes=frozenset({0, 10, 20}), options=(("preset", "ultrafast"),))


class Attack:
    """Runs the program on threads of this process, and checks what every failure owes its reader."""

    def __init__(self, folder: Path, said: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.out.mkdir()
        self._said = said

    def transcodes(self, source: object, output: object | None = None, *options: str) -> None:
        """Transcode, and make sure that it works and leaves the output alone."""
        before = self._everything()
        target = self.out / "o.mp4" if output is None else output
        code = run(["transcode", "--quiet", *QUICK, *options, "--", str(source), str(target)], ON_THREADS)
        assert (code, self._said.readouterr().err) == (0, "")
        assert len(self._everything() - before) == ("://" not in str(target) or "file:" in str(target))

    def refused(self, code: int, *words: str, arguments: list[object]) -> str:
        """Run a command that must fail with ``code`` and one line that has ``words``; return the line."""
        before = self._everything()
        ended = run([str(argument) for argument in arguments], ON_THREADS)
        lines = self._said.readouterr().err.splitlines()
        errors = [line for line in lines if line.startswith(ERROR)]
        assert (ended, len(errors), lines[-1:]) == (code, 1, errors), lines
        assert not [line for line in lines if not line.startswith("codecfleet: ")]
        assert not [word for word in words if word not in errors[0]], errors
        # What went wrong is a sentence, and so is what to do.
        assert errors[0].count(". ") >= 1
        assert self._everything() == before
        return errors[0]

    def source_refused(self, code: int, *words: str, source: object, options: tuple[str, ...] = ()) -> str:
        """Transcode a source that must be refused."""
        return self.refused(code, *words, arguments=["transcode", source, self.out / "o.mp4", *QUICK, *options])

    def _everything(self) -> set[Path]:
        return set(self.folder.rglob("*"))


@pytest.fixture
def attack(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Attack:
    """The program, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Attack(tmp_path, capsys)


def put(path: Path, data: bytes | str) -> Path:
    """Write ``data`` and return the path."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def start_of(bytes_: int, of: str = "clip.mp4") -> Build:
    """Return a builder that cuts a clip short after so many bytes."""
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
    """Make a pipe that nobody writes to."""
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


HEADER = b"\0\0\0\x14ftypisom\0\0\2\0isom"

UNREADABLE: dict[str, tuple[Build, str]] = {
    "missing": (lambda folder, _: folder / "none.mp4", "there is no file"),
    "directory": (lambda folder, _: folder, "is a directory"),
    "empty": (lambda folder, _: put(folder / "empty.mp4", b""), "is empty"),
    "text": (lambda folder, _: put(folder / "text.mp4", "hello world\n" * 99), "not a media file"),
    "noise": (noise, "not a media file"),
    "zeros": (zeros, "not a media file"),
    "cut in the box": (start_of(8), "not a media file"),
    "cut in the header": (lambda folder, _: put(folder / "x.mp4", HEADER + b"\0\0\x10\0moov"), "no track at all"),
    "nothing but a header": (lambda folder, _: put(folder / "x.mp4", HEADER), "not a media file"),
    "cut in the pictures": (start_of(500), "not a media file"),
    "cut in the name": (lambda folder, _: put(folder / "x.mkv", b"\x1aE\xdf\xa3\xa3B\x86"), "not a media file"),
    "unknown codec": (with_bytes(b"avc1", b"zzz9"), "cannot be decoded here"),
    "no codec header": (with_bytes(b"avcC", b"zzzC"), ""),
    "link to itself": (link("link.mp4"), "cannot be read"),
    "link to nowhere": (link("nowhere.mp4"), "there is no file"),
    "below a file": (lambda _, clip: clip / "x.mp4", "there is no file"),
    "name too long": (lambda folder, _: folder / ("a" * 300 + ".mp4"), "name too long"),
    "pipe": (pipe, "is a pipe or a device"),
    "device": (lambda *_: Path("/dev/zero"), "is a pipe or a device"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_source_that_is_no_film(case: str, attack: Attack, clip: Path) -> None:
    """Whatever is no readable film ends with exit code 3, whether it is to be transcoded or only planned."""
    build, words = UNREADABLE[case]
    source = build(attack.folder, clip)
    attack.source_refused(3, words, source=source)
    attack.refused(3, words, arguments=["plan", source])


@pytest.mark.parametrize("bytes_", [60, 300, 600])
def test_a_matroska_that_breaks_off(bytes_: int, attack: Attack, matroska: Path) -> None:
    """Cut anywhere before the first picture, in the header or behind it, it is exit code 3."""
    attack.source_refused(3, source=put(attack.folder / "cut.mkv", matroska.read_bytes()[:bytes_]))


def test_an_unknown_codec_in_matroska(attack: Attack, matroska: Path) -> None:
    """A codec that nobody knows is said to be that."""
    bogus = matroska.read_bytes().replace(b"V_MPEG4/ISO/AVC", b"V_BOGUS/XYZ/123")
    attack.source_refused(3, "in a codec that cannot be decoded", source=put(attack.folder / "bogus.mkv", bogus))


def test_sound_alone(attack: Attack) -> None:
    """A file without video is exit code 4, and says so."""
    source = attack.folder / "sound.mp4"
    with av.open(str(source), "w") as container:
        stream = container.add_stream("aac", rate=48_000)
        assert isinstance(stream, AudioStream)
        for number in range(20):
            frame = AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, number * 1024, Fraction(1, 48_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    attack.source_refused(4, "has no video", source=source)


def test_an_encrypted_film(attack: Attack, shared_media: Path) -> None:
    """Pictures that are encrypted are exit code 3, not a grey film."""
    attack.source_refused(3, "encrypted", source=shared_media / "encrypted_cenc_tenc_only.mp4")


def test_a_cut_off_film_keeps_what_there_is(attack: Attack, film: Path) -> None:
    """A download that broke off in the pictures still gives those before the break, and says what is damaged."""
    data = film.read_bytes()
    source = put(attack.folder / "cut.mp4", data[: len(data) // 2])
    assert run(["transcode", *QUICK, "--scale", "64x36", str(source), str(attack.out / "o.mp4")], ON_THREADS) == 0


# --- An input never makes us open a second file or address ---


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A pipe without a writer: whoever opens it to read hangs, and the test with it."""
    os.mkfifo(tmp_path / "trap.mp4")
    return tmp_path / "trap.mp4"


@pytest.fixture
def bell() -> Iterator[socket.socket]:
    """A listening socket, on which nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


SCRIPTS = {
    "m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n",
    "m3u8 with a mark": "\ufeff#EXTM3U\n#EXTINF:1,\n{}\n",
    "ffconcat": "ffconcat version 1.0\nfile '{}'\n",
    "concat": "file '{}'\n",
    "mpd": "<?xml version='1.0'?><MPD><BaseURL>{}</BaseURL></MPD>",
    "mpd in small letters": "<mpd><BaseURL>{}</BaseURL></mpd>",
    "xspf": "<?xml version='1.0'?><playlist><trackList><track><location>{}</location></track></trackList></playlist>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns={}\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
    "pls": "[playlist]\nFile1={}\n",
    "asx": "<ASX version='3.0'><entry><ref href='{}'/></entry></ASX>",
    "rtsp": "RTSPtext\n{}\n",
}


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.parametrize("suffix", [".mp4", ".m3u8"])
def test_scripts_and_playlists_are_refused(
    case: str, suffix: str, attack: Attack, trap: Path, bell: socket.socket
) -> None:
    """Under any name, a text that names other files is refused as one, and none of them is opened."""
    for target in (str(trap), f"http://127.0.0.1:{bell.getsockname()[1]}/x.mp4"):
        source = put(attack.folder / f"script{suffix}", SCRIPTS[case].format(target))
        attack.source_refused(3, "names other files", "Name the media file itself", source=source)


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


DATA_REFERENCE = [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"]


@pytest.mark.parametrize("kind", [b"url ", b"urn ", b"alis", b"rsrc"])
def test_tracks_that_lie_in_another_file(kind: bytes, attack: Attack, clip: Path, trap: Path) -> None:
    """A data reference to another file is not followed: what the file itself holds is all that is ever read."""
    record = alias(trap) if kind == b"alis" else f"file://{trap}\0".encode()
    entry = struct.pack(">II", 0, 1) + box(kind, b"\0\0\0\0" + record)
    source = put(attack.folder / "refers.mov", with_box(clip.read_bytes(), DATA_REFERENCE, entry))
    if kind == b"alis":
        attack.source_refused(3, "refers to another file", source=source)
    else:
        attack.transcodes(source)


def test_a_reference_movie(attack: Attack, trap: Path) -> None:
    """A QuickTime movie that only says where the real one is has no tracks, and the real one is not opened."""
    record = f"file://{trap}\0".encode()
    target = box(b"rdrf", b"\0\0\0\0url " + struct.pack(">I", len(record)) + record)
    movie = box(b"ftyp", b"qt  \0\0\0\0qt  ") + box(b"moov", box(b"rmra", box(b"rmda", target)))
    attack.source_refused(3, "only refers to other files", source=put(attack.folder / "reference.mov", movie))


def test_matroska_segments_are_not_linked(attack: Attack, matroska: Path) -> None:
    """A Matroska that names its next file is read alone."""
    data = matroska.read_bytes()
    os.mkfifo(attack.folder / "next.mkv")
    # Into the void element that follows the header goes the name of the file that comes next.
    named = bytes.fromhex("3e83bb88") + b"next.mkv"
    place = data.index(b"\xec", data.index(bytes.fromhex("114d9b74")))
    source = put(attack.folder / "linked.mkv", data[:place] + named + data[place + len(named) :])
    code = run(["transcode", "--quiet", *QUICK, str(source), str(attack.out / "o.mp4")], ON_THREADS)
    assert code in (0, 3)


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


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9"])
@pytest.mark.parametrize("size", [(16, 4000), (4000, 16), (1, 1), (3, 3), (2, 2)])
def test_odd_shapes(codec: str, size: tuple[int, int], attack: Attack) -> None:
    """A picture as thin as a hair or as small as a dot is encoded, or refused with the reason; nothing hangs."""
    source = still(attack.folder / "still.mkv", *size)
    refusing = {"h264": min(size) < 2, "hevc": min(size) < 16, "av1": min(size) < 4 or max(size) > 64, "vp9": False}
    if refusing[codec]:
        attack.source_refused(4, f"{size[0]}x{size[1]}", "--codec", source=source, options=("--codec", codec))
    else:
        attack.transcodes(source, None, "--codec", codec)


def test_a_single_frame(attack: Attack) -> None:
    """One picture is a film too, in any container."""
    source = still(attack.folder / "one.mkv", 64, 48, frames=1)
    for name in ("o.mp4", "o.mkv", "o.webm", "o.ts", "o.ivf"):
        attack.transcodes(source, attack.out / name, *(["--codec", "vp9"] if name == "o.ivf" else []))


def test_eight_k(attack: Attack) -> None:
    """7680 x 4320 goes through."""
    attack.transcodes(still(attack.folder / "large.mkv", 7680, 4320, frames=2))


# --- Names and addresses ---

NAMES = [
    *(
        "concat:a|b.mp4",
        "-dash.mp4",
        "with spaces 'quotes' \"more\".mp4",
        "ünï😀.mp4",
        "new\nline\r.mp4",
        "img%03d.mp4",
    ),
    *("a?b#c&d.mp4", "file:x.mp4", "http:x.mp4", "a::b.mp4", "x*[1]{2}.mp4", "subfile,,start,0,end,9,,:y.mp4", "~.mp4"),
    *("back\\slash.mp4", "pipe:0.mp4", os.fsdecode(b"caf\xe9.mp4"), "a" * 251 + ".mp4"),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_a_name(name: str, attack: Attack, clip: Path) -> None:
    """Files are opened and written under exactly the name that was given, absolute or not, whatever is in it."""
    shutil.copy(clip, attack.folder / name)
    attack.transcodes(attack.folder / name)
    attack.transcodes(name, f"out/{name}", "--overwrite")
    assert (attack.out / name).is_file()


class Server(http.server.SimpleHTTPRequestHandler):
    """A small web server of one folder, with some addresses that make trouble."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Be quiet."""

    def send_head(self) -> Any:  # noqa: ANN401 - the base class's own
        """Answer the troublesome addresses."""
        moved = {"/moved": "/clip.mp4", "/to-a-file": "file:///etc/passwd", "/round": "/round"}.get(self.path)
        if moved is not None:
            self.send_response(302)
            self.send_header("Location", moved)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        if self.path[1:].isdigit():
            self.send_error(int(self.path[1:]))
            return None
        return super().send_head()

    def do_GET(self) -> None:
        """Break off in the middle, where asked to."""
        if self.path != "/breaks-off.mp4":
            super().do_GET()
            return
        data = (Path(self.directory) / "clip.mp4").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:1000])
        self.close_connection = True

    def do_HEAD(self) -> None:
        """Send a body where there may be none, where asked to."""
        if self.path == "/talks.mp4":
            self.path = "/clip.mp4"
            super().do_GET()
        elif self.path == "/breaks-off.mp4":
            self.path = "/clip.mp4"
            super().do_HEAD()
        else:
            super().do_HEAD()


@pytest.fixture
def web(clip: Path) -> Iterator[str]:
    """The address of a web server that has the clip."""

    def handler(*arguments: Any) -> Server:  # noqa: ANN401 - socketserver's own
        return Server(*arguments, directory=str(clip.parent))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_film_on_the_web(attack: Attack, web: str) -> None:
    """It is read through fsspec, also where the server says that it has moved."""
    attack.transcodes(f"{web}/clip.mp4")
    attack.transcodes(f"{web}/moved", attack.out / "moved.mp4")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("{web}/none.mp4", "there is nothing at"),
        ("{web}/403", "403"),
        ("{web}/500", "500"),
        ("{web}/round", "cannot be opened"),
        ("{web}/to-a-file", "cannot be opened"),
        ("{web}/", "not a media file"),
        ("http://127.0.0.1:9/x.mp4", "cannot be opened"),
        ("unknown://x.mp4", "Protocol not known"),
        ("rtmp://127.0.0.1/x", "Protocol not known"),
        ("concat://x|y", "Protocol not known"),
        ("zip://x.mp4::{clip}", "not a zip file"),
        ("memory://nothing/here.mp4", "there is nothing at"),
    ],
)
def test_addresses_that_lead_nowhere(address: str, words: str, attack: Attack, web: str, clip: Path) -> None:
    """An address where nothing can be read is exit code 3, whatever the store's own error was."""
    attack.source_refused(3, words, source=address.format(web=web, clip=clip))


@pytest.mark.parametrize("name", ["talks.mp4", "breaks-off.mp4"])
def test_a_web_server_that_breaks_off(name: str, attack: Attack, web: str) -> None:
    """A server that breaks the protocol or the connection costs one line, in our words, and no traceback."""
    source = f"{web}/{name}"
    code = run(["transcode", source, str(attack.out / "o.mp4")], ON_THREADS)
    assert code in (3, 5)
    assert list(attack.out.iterdir()) == []


def test_a_web_server_that_says_nothing(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the call and never answers is given up: twice the silence that is allowed is under 20 s."""
    assert 2 * opening._HTTP_SILENCE_S < LIMIT_S
    monkeypatch.setattr(opening, "_HTTP_SILENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        attack.source_refused(3, "cannot be opened", source=f"http://127.0.0.1:{server.getsockname()[1]}/x.mp4")


def test_other_stores(attack: Attack, clip: Path) -> None:
    """A film goes from one fsspec store to another; ``file://`` is a local file like any other."""
    fsspec.filesystem("memory").pipe("/films/clip.mp4", clip.read_bytes())
    attack.transcodes("memory://films/clip.mp4", "memory://films/new/o.mp4")
    with av.open(fsspec.open("memory://films/new/o.mp4", "rb").open(), "r") as container:
        assert sum(1 for _ in container.decode(video=0)) == 25
    attack.transcodes(f"file://{clip}", f"file://{attack.out}/o.mp4")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("http://127.0.0.1:9/o.mp4", "can only be read"),
        ("unknown://b/o.mp4", "Protocol not known"),
        ("memory://films/taken.mp4", "exists already"),
    ],
)
def test_stores_that_cannot_be_written(output: str, words: str, attack: Attack, clip: Path) -> None:
    """A store that takes no file, or has one of that name, is exit code 4 before any work is done."""
    fsspec.filesystem("memory").pipe("/films/taken.mp4", b"x")
    attack.refused(4, words, arguments=["transcode", clip, output])


class FullStore(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store that breaks off in the middle of a file."""

    protocol = "full"
    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012 - as the base class has it

    def put_file(self, lpath: str, rpath: str, *_: object, **__: object) -> None:
        """Keep some of the file, and fail as a store's own library would."""
        self.pipe_file(rpath, Path(lpath).read_bytes()[:100])
        message = "no more room"
        raise RuntimeError(message)


def test_a_store_that_fails_half_way(attack: Attack, clip: Path) -> None:
    """An error of the store itself, whatever its type, is exit code 5, and says whose words they are."""
    fsspec.register_implementation("full", FullStore, clobber=True)
    attack.refused(5, "no more room", arguments=["transcode", clip, "full://films/o.mp4", *QUICK])


# --- Outputs ---


@pytest.mark.parametrize("alias", ["itself", "symlink", "hardlink", "url", "detour", "memory"])
def test_an_output_that_is_the_input(alias: str, attack: Attack, clip: Path) -> None:
    """However it is spelt, and even with --overwrite, a film is never overwritten by its own transcode."""
    source = attack.folder / "film.mp4"
    shutil.copy(clip, source)
    (attack.folder / "symlink.mp4").symlink_to(source)
    (attack.folder / "hardlink.mp4").hardlink_to(source)
    fsspec.filesystem("memory").pipe("/films/film.mp4", clip.read_bytes())
    first, second = {
        "itself": (source, source),
        "symlink": (source, attack.folder / "symlink.mp4"),
        "hardlink": (source, attack.folder / "hardlink.mp4"),
        "url": (f"file://{source}", source),
        "detour": (source, attack.folder / "out" / ".." / "film.mp4"),
        "memory": ("memory://films/film.mp4", "memory:///films/film.mp4"),
    }[alias]
    attack.refused(2, "output and input are the same", arguments=["transcode", first, second, "--overwrite"])
    assert source.read_bytes() == clip.read_bytes()


def test_outputs_that_cannot_be(attack: Attack, clip: Path) -> None:
    """A folder, a missing folder, a pipe, a taken name, a name too long or of no container: exit code 4, at once."""
    out = attack.out
    (out / "folder.mp4").mkdir()
    (out / "nowhere.mp4").symlink_to("nothing.mp4")
    put(out / "taken.mp4", b"x")
    os.mkfifo(out / "pipe.mp4")
    for name, words, *options in (
        ("folder.mp4", "is a folder", "--overwrite"),
        ("missing/o.mp4", "there is no folder"),
        ("taken.mp4/o.mp4", "there is no folder"),
        ("taken.mp4", "exists already"),
        ("nowhere.mp4", "exists already"),
        ("pipe.mp4", "is a pipe", "--overwrite"),
        ("a" * 300 + ".mp4", "name too long"),
        ("o", "no extension"),
        ("o.xyz", "unknown container .xyz"),
        ("o.webm", ".webm cannot hold h264", "--codec", "h264"),
    ):
        attack.refused(4, words, arguments=["transcode", clip, out / name, *options])
    attack.transcodes(clip, out / "taken.mp4", "--overwrite", "--report", str(out / "taken.mp4.json"))


PROGRAM = """
import sys
from codecfleet import Fleet
from codecfleet.actors import opening
from codecfleet.cli import run
from codecfleet.cli_services import Services
from codecfleet.testing import LocalPool
sys.exit(run(sys.argv[1:], Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))))
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read and write everything")
def test_files_that_may_not_be_touched(tmp_path: Path, clip: Path) -> None:
    """Without permission to read it is exit code 3, without permission to write 4."""
    secret, closed, readonly = tmp_path / "secret.mp4", tmp_path / "closed", tmp_path / "readonly"
    shutil.copy(clip, secret)
    secret.chmod(0)
    closed.mkdir(mode=0)
    readonly.mkdir(mode=0o500)
    # Root keeps its name, and loses the privilege that makes it root.
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    for source, output, code, words in (
        (secret, tmp_path / "o.mp4", 3, "Permission denied"),
        (closed / "x.mp4", tmp_path / "o.mp4", 3, "Permission denied"),
        (clip, readonly / "o.mp4", 4, "may not be written"),
        (clip, closed / "o.mp4", 4, "Permission denied"),
    ):
        command = [*plain, sys.executable, "-c", PROGRAM, "transcode", str(source), str(output)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert done.stderr.startswith(ERROR)
        assert words in done.stderr
    closed.chmod(0o700)
    assert {path.name for path in tmp_path.rglob("*")} == {"secret.mp4", "closed", "readonly"}


# --- Options ---


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        *(
            (f"{name} {value}", 2, name)
            for name in ("--quality", "--preset", "--workers")
            for value in ("nan", "-1", "9e9")
        ),
        *((f"{name} {value}", 2, name) for name in ("--bitrate", "--maxrate") for value in ("nan", "inf", "-4M", "0")),
        *((f"{name} {value}", 2, name) for name in ("--start", "--end") for value in ("nan", "inf", "-1", "1e400")),
        *((f"--segment-seconds {value}", 2, "--segment-seconds") for value in ("nan", "0", "-1", "1000000000")),
        *((f"--scale {value}", 2, "--scale") for value in ("nanxnan", "0x0", "-1x-1", "100000x100000")),
        ("--workers 0", 2, "--workers"),
        ("--quality 63", 2, "0 to 51"),
        ("--bitrate 4M --quality 20", 2, "exclude each other"),
        ("--maxrate 4M", 2, "belong together"),
        ("--bitrate 4M --maxrate 1M --bufsize 1M", 2, "below the average"),
        ("--start 5 --end 2", 2, "--end must come after --start"),
        ("--start 100", 2, "lies behind the end"),
        ("--start 0.99", 2, "no picture"),
        ("--start 0.01 --end 0.02", 2, "no picture"),
        ("--video-track -1", 2, "--video-track"),
        ("--video-track 7", 4, "no video track 7"),
        ("--audio-track 99", 4, "no audio track 99"),
        ("--scale 1x1", 4, "1x1"),
        ("--scale 65536x65536", 4, "65536x65536"),
        ("--pix-fmt nope", 4, "no pixel format 'nope'"),
        ("--pix-fmt rgb24", 4, "rgb24"),
        ("--pix-fmt cuda", 4, "cuda"),
        ("--codec mpeg2", 2, "--codec"),
        ("--device gpu", 4, "no GPU"),
        ("--nosuch", 2, "no such option"),
        ("--spec /nowhere.toml", 2, "/nowhere.toml"),
        ("--encoder-option nope=1", 4, "nope"),
        ("--encoder-option tune", 2, "KEY=VALUE"),
        ("--encoder-option x264-params=keynt=5", 4, "keynt"),
        ("--encoder-option x264-params=ref=abc", 4, "ref"),
        ("--encoder-option x264-params=stats=stolen:pass=1", 4, "stats"),
        ("--encoder-option x264-params=qpfile=/etc/passwd", 4, "qpfile"),
        ("--encoder-option passlogfile=stolen", 4, "passlogfile"),
        ("--codec hevc --encoder-option x265-params=csv=stolen", 4, "csv"),
        ("--codec hevc --encoder-option x265-params=nosuch=7", 4, "nosuch"),
        ("--codec av1 --encoder-option svtav1-params=nosuch=7", 4, "nosuch"),
        ("--codec av1 --encoder-option svtav1-params=stat-file=stolen", 4, "stat-file"),
        ("--codec vp9 --encoder-option deadline=abc", 4, "deadline"),
    ],
)
def test_options_that_make_no_sense(options: str, code: int, words: str, attack: Attack, clip: Path) -> None:
    """Absurd, misspelt and contradicting options are refused by name; none of them makes an encoder open a file."""
    attack.source_refused(code, words, source=clip, options=tuple(options.split()))


@pytest.mark.parametrize(
    "options", ["--segment-seconds 0.001", "--segment-seconds 0.000000000000000001", "--segment-seconds 30000000"]
)
@pytest.mark.parametrize("container", ["clip", "matroska"])
def test_extreme_options_that_do_make_sense(
    options: str, container: str, attack: Attack, request: pytest.FixtureRequest
) -> None:
    """Segments shorter than a frame or longer than a year come down to what can be cut."""
    attack.transcodes(request.getfixturevalue(container), None, *options.split())


def test_a_thousand_workers(attack: Attack, clip: Path) -> None:
    """More workers than there is work are no mistake."""
    attack.transcodes(clip, None, "--workers", "1000")
