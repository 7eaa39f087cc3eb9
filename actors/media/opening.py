"""Opening a source safely, and reading its packets.

An input must never make us open a second file or an address: FFmpeg gets a whitelist of formats that are complete in
one file, one protocol (``file``), and an ``io_open`` that refuses everything but the source. Playlists, concat scripts
and manifests are refused by name. Remote sources are read through fsspec, so FFmpeg never opens a socket.
"""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import av
import av.container
import av.error

from ...errors import InputNotFound, InputRefused, InputUnreadable
from .location import is_local, local_path
from .remote_file import RemoteFile, WantedBytes
from .storage_retry import reason

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream


FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,avi,flv,ivf,obu,av1,h264,hevc,vvc,m4v,mpegvideo,vc1,asf,mxf,"
    "ogg,dv,gxf,nut,yuv4mpegpipe,mp3,aac,ac3,eac3,flac,wav,aiff,caf,amr,dts,w64,opus"
)
"""Demuxers that may open a source: each reads one file and nothing else."""

_OPTIONS = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
_UNDECODED = {"skip_frame": "all", "probesize": "32"}
"""For FFmpeg's look at the first packets, whose decoders it opens with these options too."""
_NO_DURATION = {"skip_estimate_duration_from_pts": "1"}
"""Of a format without an index FFmpeg reads the end too, to guess how long it is."""
_PLAYLISTS = (
    *(b"#extm3u", b"ffconcat", b"file '", b'file "', b"<mpd", b"<?xml", b"[playlist]", b"[reference]", b"<smil"),
    *(b"<asx", b"rtsptext", b"v=0"),
)
"""How they begin, in lower case."""
_BEFORE_TEXT = b"\xef\xbb\xbf \t\r\n"
_HEAD_BYTES = 512
_REMOTE_BUFFER_BYTES = 1 << 20


@contextmanager
def open_source(
    url: str, wanted: WantedBytes | None = None, *, undecoded: bool = False
) -> Iterator[av.container.InputContainer]:
    """Open a path or URL for demuxing; ``wanted`` says how a remote one is read.

    ``undecoded`` opens a local one for its packets' presentation times alone: no picture is decoded to find out more,
    which for a small file takes longer than all else.

    Raises:
        InputNotFound: there is nothing at ``url``.
        InputRefused: it is a playlist, a script, or a format that names other files.
        InputUnreadable: it is not a media file, or may not be read.
        StorageFailed: while demuxing, a remote source could not be read any further.
    """
    if is_local(url):
        with _open_local(local_path(url), _OPTIONS | (_UNDECODED if undecoded else {})) as container:
            yield container
    else:
        with _open_remote(url, wanted or WantedBytes()) as container:
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
def _open_local(path: Path, options: dict[str, str]) -> Iterator[av.container.InputContainer]:
    _check_local(path)
    try:
        # "file:" keeps FFmpeg from reading a protocol into a name such as "concat:a|b".
        container = av.open(f"file:{path}", options=options, metadata_errors="replace")
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
        raise no_file(path) from None
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {reason(error)}"
        raise InputUnreadable(message, "Check the path, its permissions and the disk.") from None
    if empty:
        raise _empty(str(path))


def no_file(path: Path) -> InputNotFound:
    """Return the error for a local path at which there is nothing."""
    return InputNotFound(f"there is no file {path}", "Check the path.")


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputUnreadable(f"{path} is a directory, not a media file", "Name one file inside it.")
    if not stat.S_ISREG(mode):
        # Opening a pipe without a writer never returns, and every worker reads the source again.
        message = f"{path} is a pipe or a device, not a media file"
        raise InputUnreadable(message, "Write it to a file first: a source is read more than once.")


def _empty(name: str) -> InputUnreadable:
    return InputUnreadable(f"{name} is empty", "Copy or download it again.")


@contextmanager
def _open_remote(url: str, wanted: WantedBytes) -> Iterator[av.container.InputContainer]:
    with RemoteFile(url, wanted) as stream:
        head = stream.read(_HEAD_BYTES)
        if not head:
            raise _empty(url)
        stream.seek(0)
        try:
            container = av.open(
                stream,
                "r",
                options=_OPTIONS | ({} if wanted.needs_duration else _NO_DURATION),
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
    message = f"{name} is not a media file codecfleet can read ({reason(error)})"
    raise InputUnreadable(message, "Check that it is complete, and that it is video.") from error
