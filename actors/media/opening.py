"""Opening a source safely, and reading its packets.

An input must never make us open a second file or an address: FFmpeg gets a whitelist of formats that are complete in
one file, one protocol (``file``), and an ``io_open`` that refuses everything but the source. Playlists, concat scripts
and manifests are refused by name. Remote sources are read through fsspec, so FFmpeg never opens a socket.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar

import av
import av.container
import av.error

from ...errors import InputNotFound, InputRefused, InputUnreadable, StorageFailed
from .location import is_local, local_path, split_protocol
from .storage_retry import is_busy, try_again

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream


FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,avi,flv,ivf,obu,av1,h264,hevc,vvc,m4v,mpegvideo,vc1,asf,mxf,"
    "ogg,dv,gxf,nut,yuv4mpegpipe,mp3,aac,ac3,eac3,flac,wav,aiff,caf,amr,dts,w64,opus"
)
"""Demuxers that may open a source: each reads one file and nothing else."""

_OPTIONS = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
_PLAYLISTS = (
    *(b"#extm3u", b"ffconcat", b"file '", b'file "', b"<mpd", b"<?xml", b"[playlist]", b"[reference]", b"<smil"),
    *(b"<asx", b"rtsptext", b"v=0"),
)
"""How they begin, in lower case."""
_BEFORE_TEXT = b"\xef\xbb\xbf \t\r\n"
_HEAD_BYTES = 512
_REMOTE_BUFFER_BYTES = 1 << 20
_MOST_OPENING_READS = 128
"""Of a buffer each, at most."""
_NOT_THERE = (404, 410)
_HTTP_SILENCE_S = 8
"""How long a web server may stay silent; fsspec asks twice before it gives up."""

ResultT = TypeVar("ResultT")
OpeningReads: TypeAlias = dict[tuple[int, int], bytes]
"""What opening one version of a remote source read: bytes by (offset, requested length)."""


@contextmanager
def open_source(url: str, opening: OpeningReads | None = None) -> Iterator[av.container.InputContainer]:
    """Open a path or URL for demuxing.

    ``opening`` caches what opening this version of a remote source reads.

    Raises:
        InputNotFound: there is nothing at ``url``.
        InputRefused: it is a playlist, a script, or a format that names other files.
        InputUnreadable: it is not a media file, or may not be read.
        StorageFailed: while demuxing, a remote source could not be read any further.
    """
    if is_local(url):
        with _open_local(local_path(url)) as container:
            yield container
    else:
        with _open_remote(url, {} if opening is None else opening) as container:
            yield container


def demux(container: av.container.InputContainer, *streams: "Stream") -> "Iterator[Packet[Any]]":
    """Yield the packets of these tracks, or of all, in the container's order, without the empty ones at the end.

    Tracks that begin after a transport stream was opened are left out. Raises ``av.error.FFmpegError`` where the
    container cannot be read any further.
    """
    try:
        for packet in container.demux(*streams):
            if packet.size:
                yield packet
    except IndexError:
        # PyAV ends by flushing every track that FFmpeg knows by then, also those for which it made no object.
        return


@contextmanager
def _open_local(path: Path) -> Iterator[av.container.InputContainer]:
    _check_local(path)
    try:
        # "file:" keeps FFmpeg from reading a protocol into a name such as "concat:a|b".
        container = av.open(f"file:{path}", options=_OPTIONS, metadata_errors="replace")
    except (av.error.FFmpegError, ValueError) as error:
        with path.open("rb") as stream:
            _refuse(str(path), stream.read(_HEAD_BYTES), error)
    try:
        yield container
    finally:
        _close(container)


def _check_local(path: Path) -> None:
    try:
        _check_kind(path, path.stat().st_mode)
        with path.open("rb") as stream:
            empty = not stream.read(1)
    except (FileNotFoundError, NotADirectoryError):
        raise InputNotFound(f"there is no file {path}", "Check the path.") from None
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {_reason(error)}"
        raise InputUnreadable(message, "Check the path, its permissions and the disk.") from None
    if empty:
        raise _empty(str(path))


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputUnreadable(f"{path} is a directory, not a media file", "Name one file inside it.")
    if not stat.S_ISREG(mode):
        # Opening a pipe without a writer never returns, and every worker reads the source again.
        message = f"{path} is a pipe or a device, not a media file"
        raise InputUnreadable(message, "Write it to a file first: a source is read more than once.")


def _empty(name: str) -> InputUnreadable:
    return InputUnreadable(f"{name} is empty", "Copy or download it again.")


class _RemoteFile:
    """A remote file as FFmpeg reads it: fsspec's, with a store's errors mapped.

    After its first failure it only reports the end of the file: PyAV prints the traceback of an error that another
    one follows before FFmpeg returns.
    """

    def __init__(self, url: str, opening: OpeningReads) -> None:
        self._url = url
        self._failed = False
        self._stream = _opened_remote(url)
        self._position = 0
        self._opening: OpeningReads | None = opening

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # a store's file may fail to close
            self._stream.close()

    def forget_opening(self) -> None:
        """Read everything that follows from the store."""
        self._opening = None

    def read(self, size: int) -> bytes:
        if self._failed:
            return b""
        known = None if self._opening is None else self._opening.get((self._position, size))
        data = self._tried(lambda: self._fetched(size)) if known is None else known
        if self._opening is not None and len(self._opening) < _MOST_OPENING_READS:
            self._opening[self._position, size] = data
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self._failed:
            return 0
        if whence == os.SEEK_END:
            self._position = int(self._tried(lambda: self._stream.seek(offset, whence)))
        else:
            self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def _fetched(self, size: int) -> bytes:
        if self._stream.tell() != self._position:
            self._stream.seek(self._position)
        data = bytes(self._stream.read(size))
        if not data and size and self._position < (getattr(self._stream, "size", None) or 0):
            message = f"the store ended it at byte {self._position} of {self._stream.size}"
            raise OSError(errno.EIO, message)
        return data

    def _tried(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return try_again(call)
        except Exception as error:
            self._failed = True
            message = f"{self._url} could not be read any further: {_reason(error)}"
            raise StorageFailed(message, "Check the connection and start again, or download the file first.") from error


def _opened_remote(url: str) -> Any:  # noqa: ANN401 - fsspec has no types
    try:
        return try_again(lambda: _open_once(url))
    except FileNotFoundError as error:
        cause = error.__cause__
        if cause is None or getattr(cause, "status", None) in _NOT_THERE:
            raise InputNotFound(f"there is nothing at {url}", "Check the address.") from None
        message = f"{url} cannot be opened: {_reason(cause)}"
    except Exception as error:
        message = f"{url} cannot be opened: {_reason(error)}"
        if is_busy(error):
            raise StorageFailed(message, "Start again when the server is well, or download the file first.") from error
    raise InputUnreadable(message, "Check the address, the credentials and that its fsspec package is installed.")


def _open_once(url: str) -> Any:  # noqa: ANN401 - fsspec has no types
    import fsspec

    try:
        return fsspec.open(url, "rb", **store_options(url)).open()
    except FileNotFoundError as error:
        # fsspec's web support reports every failure as a missing file; a silent server has been asked twice.
        if error.__cause__ is not None and is_busy(error.__cause__):
            raise error.__cause__ from None
        raise


def store_options(url: str) -> dict[str, Any]:
    """Return fsspec's options for a store: web servers that go silent time out."""
    if split_protocol(url)[0] not in ("http", "https"):
        return {}
    try:
        import aiohttp  # comes with fsspec's web support, or not
    except ImportError:
        return {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_HTTP_SILENCE_S, sock_read=_HTTP_SILENCE_S)
    return {"client_kwargs": {"timeout": timeout}}


@contextmanager
def _open_remote(url: str, opening: OpeningReads) -> Iterator[av.container.InputContainer]:
    with _RemoteFile(url, opening) as stream:
        head = stream.read(_HEAD_BYTES)
        if not head:
            raise _empty(url)
        stream.seek(0)
        try:
            container = av.open(
                stream,
                "r",
                options=_OPTIONS,
                metadata_errors="replace",
                buffer_size=_REMOTE_BUFFER_BYTES,
                io_open=_refuse_second,
            )
        except (av.error.FFmpegError, ValueError) as error:
            _refuse(url, head, error)
        stream.forget_opening()
        try:
            yield container
        finally:
            _close(container)


def _refuse_second(url: str, flags: int, options: dict[str, Any]) -> NoReturn:  # noqa: ARG001 - PyAV's signature
    raise PermissionError(errno.EPERM, f"the input asked to open {url}")


def _close(container: av.container.InputContainer) -> None:
    # An abandoned frame-threaded decoder can hang in close() once PyAV's log level was set; a flushed one never does.
    for stream in container.streams.video:
        if stream.codec_context is not None and stream.codec_context.is_open:
            stream.codec_context.flush_buffers()
    container.close()


def _refuse(name: str, head: bytes, error: Exception) -> NoReturn:
    if head.lstrip(_BEFORE_TEXT).lower().startswith(_PLAYLISTS):
        message = f"{name} is a playlist or a script that names other files"
        raise InputRefused(message, "Name the media file itself.") from error
    message = f"{name} is not a media file codecfleet can read ({_reason(error)})"
    raise InputUnreadable(message, "Check that it is complete, and that it is video.") from error


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
