"""Opening a source, safely.

An input may never make us open a second file or an address: FFmpeg gets a whitelist of formats that are complete in
one file, one protocol (``file``), and an ``io_open`` that refuses whatever a demuxer asks for beyond the source
itself. Playlists, concat scripts and manifests are refused by name. Remote sources are read through fsspec, so
FFmpeg never opens a socket.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import av
import av.container
import av.error
import fsspec
from fsspec.core import split_protocol

from ..errors import CodecfleetError, InputNotFound, InputRefused, InputUnreadable

__all__ = ["FORMATS", "is_local", "local_path", "open_source"]

FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,avi,flv,ivf,obu,av1,h264,hevc,vvc,m4v,mpegvideo,vc1,asf,mxf,"
    "ogg,dv,gxf,nut,yuv4mpegpipe,mp3,aac,ac3,eac3,flac,wav,aiff,caf,amr,dts,w64,opus"
)
"""Demuxers that may open a source: each reads one file and nothing else."""

_OPTIONS = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
_PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<MPD", b"<?xml", b"[playlist]", b"<smil", b"v=0")
_REMOTE_BUFFER_BYTES = 1 << 20


def is_local(url: str) -> bool:
    """Tell whether ``url`` names a file of this machine."""
    return split_protocol(url)[0] in (None, "file", "local")


def local_path(url: str) -> Path:
    """Return the path of a local ``url``, with or without its ``file://``."""
    return Path(split_protocol(url)[1])


@contextmanager
def open_source(url: str) -> Iterator[av.container.InputContainer]:
    """Open ``url`` for demuxing and close it again, whatever happens inside.

    Raises:
        InputNotFound: there is nothing at ``url``.
        InputRefused: it is a playlist, a script, or a format that names other files.
        InputUnreadable: it is no media file, or may not be read.
    """
    if is_local(url):
        with _open_local(local_path(url)) as container:
            yield container
    else:
        with _open_remote(url) as container:
            yield container


@contextmanager
def _open_local(path: Path) -> Iterator[av.container.InputContainer]:
    _check_local(path)
    try:
        # "file:" keeps FFmpeg from reading a protocol into a name such as "concat:a|b".
        container = av.open(f"file:{path}", options=_OPTIONS, metadata_errors="replace")
    except (av.error.FFmpegError, ValueError) as error:
        _refuse(str(path), _head(path), error)
    try:
        yield container
    finally:
        _close(container)


def _check_local(path: Path) -> None:
    try:
        if path.is_dir():
            message = f"{path} is a directory, not a media file"
            raise InputUnreadable(message, "Name one file inside it.")
        with path.open("rb") as stream:
            empty = not stream.read(1)
    except FileNotFoundError:
        message = f"there is no file {path}"
        raise InputNotFound(message, "Check the path.") from None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise InputUnreadable(message, "Check its permissions.") from None
    if empty:
        message = f"{path} is empty"
        raise InputUnreadable(message, "Copy or download it again.")


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(512)


@contextmanager
def _open_remote(url: str) -> Iterator[av.container.InputContainer]:
    try:
        opened = fsspec.open(url, "rb")
        stream = opened.open()
    except CodecfleetError:
        raise
    except FileNotFoundError:
        message = f"there is nothing at {url}"
        raise InputNotFound(message, "Check the address.") from None
    except (OSError, ValueError, ImportError) as error:
        message = f"{url} cannot be opened: {error}"
        raise InputUnreadable(
            message, "Check the address, the credentials and that its fsspec package is installed."
        ) from None
    with stream:
        head = stream.read(512)
        stream.seek(0)
        try:
            container = av.open(
                stream,
                options=_OPTIONS,
                metadata_errors="replace",
                buffer_size=_REMOTE_BUFFER_BYTES,
                io_open=_refuse_second,
            )
        except (av.error.FFmpegError, ValueError) as error:
            _refuse(url, head, error)
        try:
            yield container
        finally:
            _close(container)


def _refuse_second(url: str, flags: int, options: dict[str, Any]) -> NoReturn:  # noqa: ARG001 - PyAV's signature
    message = f"the input asked to open {url}"
    raise PermissionError(errno.EPERM, message)


def _close(container: av.container.InputContainer) -> None:
    # An abandoned frame-threaded decoder can hang in close() once PyAV's log level was set; a flushed one never does.
    for stream in container.streams.video:
        if stream.codec_context is not None and stream.codec_context.is_open:
            stream.codec_context.flush_buffers()
    container.close()


def _refuse(name: str, head: bytes, error: Exception) -> NoReturn:
    if head.lstrip().startswith(_PLAYLISTS):
        message = f"{name} is a playlist or a script that names other files"
        raise InputRefused(message, "Name the media file itself.") from error
    message = f"{name} is not a media file codecfleet can read ({_reason(error)})"
    raise InputUnreadable(message, "Check that it is complete, and that it is video.") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
