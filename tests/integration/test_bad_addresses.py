"""Addresses and stores that redirect, break off, stay silent or do not exist."""

import http.server
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from codecfleet.actors.backoff import Backoff
from codecfleet.actors.media import remote_file, storage_retry, stores
from codecfleet.cli.app import run
from codecfleet.errors import StorageFailed
from codecfleet.jobs.join import publish
from codecfleet.jobs.source.source import read_source

from .attacks import LIMIT_S, ON_THREADS, QUICK, Attack, attack, clip

__all__ = ["attack", "clip"]


FILM = Path(__file__).parents[2] / "examples/media/bunny.mp4"

pytestmark = pytest.mark.timeout(60)


MOVED = {
    "/moved": "/clip.mp4",
    "/to-a-file": "file:///etc/passwd",
    "/round": "/round",
    "/inside": "http://169.254.169.254/latest/meta-data",
    "/mapped": "http://[::ffff:169.254.169.254]/latest/meta-data",
    "/twice": "/inside",
}
"""Addresses that redirect."""


class Server(http.server.SimpleHTTPRequestHandler):
    """A small web server for one folder, some of whose addresses make trouble."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Be quiet."""

    def send_head(self) -> Any:
        """Answer the troublesome addresses."""
        moved = MOVED.get(self.path)
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
        """Break off in the middle, if the address says so."""
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
        """Send a body where none is allowed, if the address says so."""
        if self.path == "/talks.mp4":
            self.path = "/clip.mp4"
            super().do_GET()
        elif self.path == "/breaks-off.mp4":
            self.path = "/clip.mp4"
            super().do_HEAD()
        else:
            super().do_HEAD()


class QuietServer(http.server.ThreadingHTTPServer):
    """A server that ignores clients that disconnect during an answer, as one does that refuses a film."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a disconnected client; anything else is an error of the test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_retry, "PAUSES", Backoff(0, 0))


@pytest.fixture
def web(clip: Path) -> Iterator[str]:
    """The address of a web server that has the clip."""

    def handler(*arguments: Any) -> Server:
        return Server(*arguments, directory=str(clip.parent))

    with QuietServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_film_on_the_web(attack: Attack, web: str) -> None:
    """A film on the web is read through fsspec, even after a redirect."""
    attack.transcodes(f"{web}/clip.mp4")
    attack.transcodes(f"{web}/moved", attack.out / "moved.mp4")


def test_a_web_server_without_ranges(web: str, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ranges a small file is fetched as a whole; a large one is refused in one line with the reason."""
    shutil.copyfile(FILM, clip.with_name("film.mp4"))
    assert read_source(f"{web}/film.mp4").index.packets == 240
    monkeypatch.setattr(remote_file, "_MOST_IN_MEMORY_BYTES", 1 << 20)
    with pytest.raises(StorageFailed, match="does not support HTTP ranges"):
        read_source(f"{web}/film.mp4")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("{web}/none.mp4", "there is nothing at"),
        ("{web}/403", "403"),
        ("{web}/round", "the server redirects without end"),
        ("{web}/inside", "redirects to 169.254.169.254"),
        ("{web}/mapped", "an address inside this network"),
        ("{web}/twice", "redirects to 169.254.169.254"),
        ("{web}/to-a-file", "cannot be opened"),
        ("{web}/", "not a media file"),
        ("http://no-such-host.invalid/x.mp4", "cannot be opened"),
        ("unknown://x.mp4", "Protocol not known"),
        ("rtmp://127.0.0.1/x", "Protocol not known"),
        ("concat://x|y", "Protocol not known"),
        ("zip://x.mp4::{clip}", "not a zip file"),
        ("memory://nothing/here.mp4", "there is nothing at"),
    ],
)
def test_addresses_that_lead_nowhere(address: str, words: str, attack: Attack, web: str, clip: Path) -> None:
    """An address where nothing can be read gives exit code 3, whatever the store's error was."""
    attack.source_refused(3, words, source=address.format(web=web, clip=clip))


@pytest.mark.parametrize("name", ["talks.mp4", "breaks-off.mp4"])
def test_a_web_server_that_breaks_off(name: str, attack: Attack, web: str) -> None:
    """A server that breaks the protocol or the connection gives one line and no traceback."""
    source = f"{web}/{name}"
    code = run(["transcode", source, str(attack.out / "o.mp4")], ON_THREADS)
    assert code in (3, 5)
    assert list(attack.out.iterdir()) == []


def test_a_web_server_that_says_nothing(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts but never answers is an error within 20 s, twice the allowed silence."""
    assert 2 * stores.HTTP_SILENCE_S < LIMIT_S
    monkeypatch.setattr(stores, "HTTP_SILENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        attack.source_refused(5, "cannot be opened", source=f"http://127.0.0.1:{server.getsockname()[1]}/x.mp4")


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
    """A store that cannot be written, or has a file of that name, gives exit code 4 before any work."""
    fsspec.filesystem("memory").pipe("/films/taken.mp4", b"x")
    attack.refused(4, words, arguments=["transcode", clip, output])


class FullStore(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store that breaks off in the middle of a file."""

    protocol = "full"
    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012 - as the base class has it

    def put_file(self, lpath: str, rpath: str, *_: object, **__: object) -> None:
        """Keep a part of the file, and fail like a store's own library."""
        self.pipe_file(rpath, Path(lpath).read_bytes()[:100])
        message = "no more room"
        raise RuntimeError(message)


def test_a_store_that_fails_half_way(attack: Attack, clip: Path) -> None:
    """An error of the store, of whatever class, gives exit code 5 and names the store's words."""
    fsspec.register_implementation("full", FullStore, clobber=True)
    attack.refused(5, "no more room", arguments=["transcode", clip, "full://films/o.mp4", *QUICK])


class ObjectStore(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store of objects with multipart uploads, which has only the bucket ``films``."""

    protocol = "objects"
    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012 - as the base class has it
    discarded = 0

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "wb":
            return super()._open(path, mode)
        return Upload(self, path, mode, autocommit=options["autocommit"])


class Upload(AbstractBufferedFile):  # type: ignore[misc] # fsspec publishes no types
    """An upload to an ``ObjectStore``."""

    def _initiate_upload(self) -> None:
        if "films/" not in self.path:
            message = "the bucket does not exist"
            raise FileNotFoundError(message)

    def _upload_chunk(self, final: bool = False) -> bool:  # noqa: FBT001, FBT002 - fsspec's signature
        return final and self.autocommit

    def discard(self) -> None:
        """Forget what was uploaded."""
        ObjectStore.discarded += 1


def test_a_bucket_is_tried_before_the_work(attack: Attack, clip: Path) -> None:
    """A missing bucket gives exit code 4 before anything is encoded; an existing one keeps nothing of the trial."""
    fsspec.register_implementation("objects", ObjectStore, clobber=True)
    words = "the bucket does not exist"
    attack.refused(4, words, arguments=["transcode", clip, "objects://nowhere/o.mp4", *QUICK])
    publish.check_output(str(clip), "objects://films/o.mp4", overwrite=False)
    assert ObjectStore.discarded == 2
    assert ObjectStore.store == {}
