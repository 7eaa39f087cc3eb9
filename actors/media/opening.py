"""Opens a source safely and reads its packets: no source can make this process open a second file or an address.

FFmpeg gets an open file, a whitelist of formats that consist of one file, no protocol, and an ``io_open`` that refuses
everything.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import av
import av.container
import av.error

from ...errors import InputNotFound, InputRefused, InputTooLarge, InputUnreadable
from ..closing import undone_by
from ..limits import InputLimits
from .av_stream import extradata
from .headers import FragmentWatch, SplicedFile
from .location import UNKNOWN_BYTES, EndedSource, HeldFile, HeldSource, is_local, local_path
from .remote_file import RemoteFile, WantedBytes
from .storage_retry import reason
from .stores import changed_meanwhile

if TYPE_CHECKING:
    from av.packet import Packet, PacketSideData
    from av.stream import Stream
    from av.video.stream import VideoStream

    from .structure import Readable

    _File: TypeAlias = "_LocalFile | HeldFile | RemoteFile | SplicedFile"


FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,avi,flv,ivf,obu,av1,h264,hevc,vvc,m4v,mpegvideo,vc1,asf,mxf,"
    "ogg,dv,gxf,nut,yuv4mpegpipe,mp3,aac,ac3,eac3,flac,wav,aiff,caf,amr,dts,w64,opus"
)
"""Demuxers that may open a source: each reads one file and nothing else."""

_OPTIONS = {
    "format_whitelist": FORMATS,
    "protocol_whitelist": "none",
    # Options of the mov demuxer: whether it follows references to other files, and whether these may have absolute
    # paths.
    "enable_drefs": "0",
    "use_absolute_path": "0",
}
_UNDECODED = {"skip_frame": "all", "probesize": "32"}
"""Options that keep FFmpeg from decoding pictures when it examines the first packets."""
_UNPARSED = {"fflags": "+noparse"}
_NO_DURATION = {"skip_estimate_duration_from_pts": "1"}
"""The option that keeps FFmpeg from reading the end of a file to guess the duration if the file has no index."""
_PLAYLISTS = (
    *(b"#extm3u", b"ffconcat", b"file '", b'file "', b"<mpd", b"<?xml", b"[playlist]", b"[reference]", b"<smil"),
    *(b"<asx", b"rtsptext", b"v=0"),
)
"""The beginnings of playlists, in lower case."""
_BEFORE_TEXT = b"\xef\xbb\xbf \t\r\n"
_HEAD_BYTES = 512
_LOCAL_BUFFER_BYTES = 1 << 15
"""The size of a read, FFmpeg's default: larger reads would mostly fetch other tracks if only one small track is wanted.
"""
_LARGE_BUFFER_BYTES = 1 << 18
"""The size of a read of a local file that is read almost completely. Each read takes the GIL, for which a worker's
threads compete; this size saves seven of eight reads.
"""
_REMOTE_BUFFER_BYTES = 1 << 20


@contextmanager
def open_source(
    url: str,
    wanted: WantedBytes | None = None,
    *,
    limits: InputLimits | None = None,
    undecoded: bool = False,
    large_reads: bool = False,
    watch: FragmentWatch | None = None,
    key: bytes | None = None,
    parsed: bool = True,
) -> Iterator[av.container.InputContainer]:
    """Open a path, URL or ``HeldSource`` for demuxing; ``wanted`` says how a remote source is read.

    If ``limits`` is None, the limits in the environment apply. ``undecoded`` skips decoding the first pictures, which
    takes longer than everything else: set it for an mp4 or Matroska file whose facts are known, or if only presentation
    times are wanted. ``large_reads`` is for a local file that is read almost completely. ``watch`` sees the reads while
    the source is opened. ``key`` decrypts an mp4 file. Unless ``parsed``, packets are yielded as the container has
    them, even if FFmpeg's parser would split or join them.

    Raises:
        InputNotFound: there is nothing at ``url``.
        InputRefused: the source is a playlist, a script, or a format that names other files.
        InputTooLarge: the source's header exceeds a limit.
        InputUnreadable: the source is not a media file, or may not be read.
        StorageFailed: while demuxing, a remote source could not be read any further.
    """
    limits = InputLimits.of(os.environ) if limits is None else limits
    options = (
        (_UNDECODED if undecoded else {})
        | ({} if key is None else {"decryption_key": key.hex()})
        | ({} if parsed else _UNPARSED)
    )
    if is_local(url):
        buffer_bytes = _LARGE_BUFFER_BYTES if large_reads else _LOCAL_BUFFER_BYTES
        with _open_local(url, buffer_bytes, limits, options, watch) as container:
            yield container
    else:
        with _open_remote(url, wanted or WantedBytes(), limits, options, watch) as container:
            yield container


@contextmanager
def open_bytes(url: str) -> "Iterator[Readable]":
    """Open a path, URL or ``HeldSource`` to read its bytes directly; errors as for ``open_source``."""
    if isinstance(url, HeldSource):
        yield _opened_held(url)
    elif is_local(url):
        with BufferedReader(_opened(local_path(url))) as file:
            yield file
    else:
        with RemoteFile(url, WantedBytes()) as stream:
            yield stream


def demux(container: av.container.InputContainer, *streams: "Stream") -> "Iterator[Packet[Any]]":
    """Yield the packets of these tracks, or of all tracks, in the container's order, without empty packets at the end.

    Tracks that appear after a transport stream was opened are left out. Raises ``av.error.FFmpegError`` if the
    container cannot be read any further.
    """
    try:
        for packet in container.demux(*streams):
            if packet.size:
                yield packet
    except IndexError:
        # At the end PyAV flushes every track that FFmpeg knows by then, including those without a PyAV object.
        return


def side_data(packet: "Packet[Any]") -> "dict[str, PacketSideData]":
    """Return a packet's side data, keyed by FFmpeg's names."""
    entries = tuple(packet.iter_sidedata())
    return {entry.data_type: entry for entry in entries} if entries else {}


@contextmanager
def _open_local(
    url: str, buffer_bytes: int, limits: InputLimits, options: Mapping[str, str], watch: FragmentWatch | None
) -> Iterator[av.container.InputContainer]:
    name = url if isinstance(url, HeldSource) else str(local_path(url))
    end_bytes = url.end_bytes if isinstance(url, EndedSource) else None
    with _opened_held(url) if isinstance(url, HeldSource) else _opened(local_path(url), end_bytes) as file:
        try:
            file.watch = watch
            grows = isinstance(url, HeldSource) and url.version[2] == UNKNOWN_BYTES
            container = _open(name, file, buffer_bytes, limits, {**options, **(_NO_DURATION if grows else {})})
        except (av.error.FFmpegError, ValueError) as error:
            file.watch = None
            file.seek(0)
            _refuse(name, file.read(_HEAD_BYTES), error)
        file.watch = None
        try:
            yield container
        finally:
            _close(container)


def _opened(path: Path, end_bytes: int | None = None) -> "_LocalFile":
    file = open_local(path, end_bytes)
    with undone_by(file.close):
        _check_content(str(path), file)
    return file


def open_local(path: Path, end_bytes: int | None = None) -> "_LocalFile":
    """Open a local file, or its first ``end_bytes``, without waiting. Raises InputNotFound; InputUnreadable."""
    try:
        return open_regular(path, end_bytes)
    except (FileNotFoundError, NotADirectoryError):
        raise no_file(path) from None
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and os.access(path, os.R_OK):
            # A sandboxed command may open the file that it was started with, but no other file that later gets the same
            # name.
            raise changed_meanwhile(str(path)) from None
        raise _unreadable(path, error) from None


def _opened_held(source: HeldSource) -> HeldFile:
    file = HeldFile(source)
    _check_content(source, file)
    return file


def _check_content(name: str, file: "_LocalFile | HeldFile") -> None:
    if not file.read(1):
        raise _empty(name)
    file.seek(0)


def open_regular(path: Path, end_bytes: int | None = None) -> "_LocalFile":
    """Open a local file, or its first ``end_bytes``, without waiting for a writer.

    ``InputUnreadable`` if it is a folder, a pipe or a device; ``OSError`` if the system cannot open it.
    """
    _check_kind(path, path.stat().st_mode)
    file = _LocalFile(path, end_bytes)
    with undone_by(file.close):
        # The file may have been replaced since it was checked.
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    return file


class _LocalFile(FileIO):
    """A local file, or its first ``end_bytes``, as FFmpeg reads it, without read-ahead.

    ``InputUnreadable`` if the disk fails.
    """

    def __init__(self, path: Path, end_bytes: int | None = None) -> None:
        super().__init__(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        self._path = path
        self._end_bytes = end_bytes
        self.watch: FragmentWatch | None = None
        # FFmpeg reads the extension; "file:" keeps FFmpeg from finding a protocol in a name such as "concat:a|b".
        self.name = f"file:{path}"

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END and self._end_bytes is not None:
            return super().seek(self._end_bytes + offset)
        return super().seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        if self._end_bytes is not None:
            left = max(0, self._end_bytes - self.tell())
            size = left if size is None or size < 0 else min(size, left)
        try:
            data = super().read(size) or b""
        except OSError as error:
            raise _unreadable(self._path, error) from None
        if self.watch is not None:
            self.watch.see(self.tell() - len(data), data)
        return data


def _open(
    name: str, file: "_File", buffer_bytes: int, limits: InputLimits, options: Mapping[str, str]
) -> av.container.InputContainer:
    """Return the container of an open file, within ``limits``; ``options`` are additional options for FFmpeg."""
    container = _demuxed(name, file, buffer_bytes, limits, options)
    with undone_by(container.close):
        _check_header(name, container, limits)
        if not all(video.width for video in _decodable(container)):
            # A decoder rejected the pictures, so FFmpeg forgot their size. Without decoders, FFmpeg keeps the size that
            # the container states.
            container.close()
            file.seek(0)
            with _demuxed(name, file, buffer_bytes, limits, {"codec_whitelist": "none"}) as undecoded:
                _check_header(name, undecoded, limits)
            file.seek(0)
            container = _demuxed(name, file, buffer_bytes, limits, options)
    for video in _decodable(container):
        video.codec_context.options = {"max_pixels": limits.options["max_pixels"]}
    return container


def _demuxed(
    name: str, file: "_File", buffer_bytes: int, limits: InputLimits, options: Mapping[str, str]
) -> av.container.InputContainer:
    try:
        return av.open(
            file,
            "r",
            options={**_OPTIONS, **limits.options, **options},
            metadata_errors="replace",
            buffer_size=buffer_bytes,
            io_open=_refuse_second,
        )
    except MemoryError as error:
        # The mp4 demuxer also gives this error for a file with one track too many.
        message = f"{name} has more than {limits.max_tracks} tracks, or does not fit into memory"
        raise InputTooLarge(message, limits.advice("max_tracks")) from error


def _check_header(name: str, container: av.container.InputContainer, limits: InputLimits) -> None:
    limits.check("max_tracks", len(container.streams), f"{name} has at least {len(container.streams)} tracks")
    for stream in container.streams:
        if stream.type == "attachment":
            size_bytes = len(extradata(stream))
            limits.check("max_attachment_bytes", size_bytes, f"a file in {name} has {size_bytes} bytes")
    for video in _decodable(container):
        limits.check_size(name, video.width, video.height)


def _decodable(container: av.container.InputContainer) -> "Iterator[VideoStream]":
    """Yield the video tracks that have a decoder: PyAV does not know the size of other tracks."""
    # PyAV's types promise a context, but a codec unknown to FFmpeg has none.
    return (each for each in container.streams.video if getattr(each, "codec_context", None) is not None)


def _unreadable(path: Path, error: Exception) -> InputUnreadable:
    return InputUnreadable(f"{path} cannot be read: {reason(error)}", "Check the path, its permissions and the disk.")


def no_file(path: Path) -> InputNotFound:
    """Return the error for a local path that does not exist."""
    return InputNotFound(f"there is no file {path}", "Check the path.")


def refuse_folder(source: str) -> None:
    """Raise ``InputUnreadable`` for a folder, before another error hides the fact that it is a folder."""
    is_folder = False
    with suppress(OSError, ValueError):  # a path that cannot be examined is refused when it is opened
        is_folder = is_local(source) and local_path(source).is_dir()
    if is_folder:
        raise _folder(local_path(source))


def _folder(path: Path) -> InputUnreadable:
    step = "Name one file, or encode all of them: `codecfleet batch FOLDER --output DIR`."
    return InputUnreadable(f"{path} is a folder, not a media file", step)


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise _folder(path)
    if not stat.S_ISREG(mode):
        # A source is read several times, and opening a pipe without a writer never returns.
        message = f"{path} is a pipe or a device, not a media file"
        raise InputUnreadable(message, "Write the data to a file first: a source is read more than once.")


def _empty(name: str) -> InputUnreadable:
    return InputUnreadable(f"{name} is empty", "Copy or download the file again.")


@contextmanager
def _open_remote(
    url: str, wanted: WantedBytes, limits: InputLimits, options: Mapping[str, str], watch: FragmentWatch | None
) -> Iterator[av.container.InputContainer]:
    with RemoteFile(url, wanted) as stream:
        head = stream.read(_HEAD_BYTES)
        if not head:
            raise _empty(url)
        stream.seek(0)
        stream.watch = watch
        try:
            options = {**options, **({} if wanted.needs_duration else _NO_DURATION)}
            shown = stream if wanted.part is None else SplicedFile(stream, wanted.part)
            container = _open(url, shown, _REMOTE_BUFFER_BYTES, limits, options)
        except (av.error.FFmpegError, ValueError) as error:
            _refuse(url, head, error)
        stream.end_opening()
        try:
            yield container
        finally:
            _close(container)


def _refuse_second(url: str, flags: int, options: dict[str, Any]) -> NoReturn:  # noqa: ARG001 - PyAV's signature
    raise PermissionError(errno.EPERM, f"the input asked to open {url}")


def _close(container: av.container.InputContainer) -> None:
    # If PyAV's log level was set, an abandoned frame-threaded decoder can hang in close(); a flushed decoder does not.
    for stream in container.streams.video:
        if stream.codec_context is not None and stream.codec_context.is_open:
            stream.codec_context.flush_buffers()
    container.close()


def _refuse(name: str, head: bytes, error: Exception) -> NoReturn:
    if head.lstrip(_BEFORE_TEXT).lower().startswith(_PLAYLISTS):
        message = f"{name} is a playlist or a script that names other files"
        raise InputRefused(message, "Name the media file itself.") from error
    message = f"{name} is not a media file codecfleet can read ({reason(error)})"
    raise InputUnreadable(message, "Check that the file is complete, and that it is a video.") from error
