"""Measures VMAF with the FFmpeg of imageio-ffmpeg, since that of PyAV lacks libvmaf.

libvmaf sums in integers, prints six digits, and prints the same with any threads and with or without SIMD.
"""

import os
import platform
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ...errors import EncoderFailed, EngineUnfit
from ..closing import Closing, undone_by
from ..encode.target import QualityMetric
from ..media.values import VideoFormat
from ..process.running import Prints, Running, start_command
from ..surfaces.host_pictures import plane_rows
from .measuring import UNITS, grey_format

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_START_S: Final = 60.0  #: how long FFmpeg may take to print its version
_STALL_S: Final = 120.0  #: how long FFmpeg may go without accepting a picture
_LOOK_S: Final = 0.05
_SAID_BYTES: Final = 1 << 16
_ADVICE: Final = "Run the job again, or use --target-quality with xpsnr."
_MOST: Final = QualityMetric.VMAF.most * UNITS
_HEAD: Final = ("-hide_banner", "-nostdin", "-loglevel", "error")
_SERIES: Final = (
    # Originals and encoded pictures take turns in one pipe. libvmaf takes no grey pictures, and its model reads luma
    # only, so the chroma planes repeat luma.
    r"mergeplanes=0x000000:{planar},split[even][odd];[even]select=not(mod(n\,2)),setpts=N[original];"
    r"[odd]select=mod(n\,2),setpts=N[encoded];[encoded][original]libvmaf=n_threads={threads}:log_fmt=csv:log_path={log}"
)


@dataclass(frozen=True, slots=True)
class VmafTool:
    """An FFmpeg with libvmaf; ``version`` also names the kind of processor."""

    path: str
    version: str


@cache
def vmaf_tool() -> VmafTool | None:
    """Return this machine's FFmpeg with libvmaf; None if there is none."""
    try:
        import imageio_ffmpeg  # noqa: PLC0415 - an optional extra

        path = str(imageio_ffmpeg.get_ffmpeg_exe())
        running = start_command([path, "-version"], prints=Prints.KEPT)
    except (ImportError, RuntimeError, OSError):
        return None
    with running.end:
        if running.code(_START_S) is None:
            running.kill_group()
        said = os.pread(running.kept, _SAID_BYTES, 0).decode(errors="replace")
        running.ended()
    return tool_of(path, said, platform.machine())


def tool_of(path: str, said: str, machine: str) -> VmafTool | None:
    """Return the FFmpeg at ``path`` that printed ``said`` as its version; None if it lacks libvmaf."""
    found = re.match(r"ffmpeg version (\S+)", said)
    if found is None or "--enable-libvmaf" not in said.split():
        return None
    return VmafTool(path, f"{found[1]}-{machine}")


class VmafMeter(Closing):
    """Measures a series of pairs of pictures, in order of presentation; ``values`` are complete after ``drain``.

    ``EngineUnfit`` if this machine has no FFmpeg of version ``required`` with libvmaf.
    """

    def __init__(self, picture: VideoFormat, required: str, threads: int) -> None:
        self.values: list[int] = []
        self.taken = 0
        self._grey = grey_format(picture.pix_fmt)
        self._bytes = np.dtype(np.uint8 if self._grey == "gray" else np.uint16)
        self._log = os.memfd_create("codecfleet-vmaf")
        self._running: Running | None = None
        with undone_by(self.close):
            command = [checked_tool(required).path, *_HEAD, *_arguments(picture, self._grey, self._log, threads)]
            try:
                self._running = start_command(command, prints=Prints.KEPT, inherited=[self._log])
            except OSError as error:
                raise EngineUnfit(f"the FFmpeg that measures VMAF does not start: {error}", _ADVICE) from error
            self._running.end.settimeout(_STALL_S)

    @property
    def process(self) -> int:
        """FFmpeg's process id; 0 if FFmpeg has ended."""
        return 0 if self._running is None else self._running.pid

    def close(self) -> None:
        """End FFmpeg."""
        self._ended()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def take(self, encoded: "VideoFrame", original: "VideoFrame") -> None:
        """Measure a pair. Raises EncoderFailed: FFmpeg has ended, or takes no pictures."""
        for picture in (original, encoded):
            self._send(picture)
        self.taken += 1

    def drain(self) -> bool:
        """Wait a moment for FFmpeg's end; return whether it still works. Raises EncoderFailed."""
        running = self._running
        if running is None:
            return False
        running.end.shutdown(socket.SHUT_WR)
        code = running.code(_LOOK_S)
        if code is None:
            return True
        if code:
            raise self._failure()
        size = os.fstat(self._log).st_size
        self.values = scores_of(os.pread(self._log, size, 0))
        if len(self.values) != self.taken:
            raise EncoderFailed(f"VMAF was measured for {len(self.values)} of {self.taken} pictures", _ADVICE)
        self.close()
        return False

    def _send(self, picture: "VideoFrame") -> None:
        plane = picture.planes[0]  # luma or green
        if self._running is None:
            raise ValueError("the meter is closed")
        try:
            self._running.end.sendall(np.ascontiguousarray(plane_rows(plane, self._bytes)[:, : plane.width]).data)
        except TimeoutError as error:
            raise EncoderFailed(
                f"the FFmpeg that measures VMAF accepted no picture for {_STALL_S:g} s", _ADVICE
            ) from error
        except OSError as error:
            raise self._failure() from error

    def _failure(self) -> EncoderFailed:
        return EncoderFailed(f"the FFmpeg that measures VMAF failed: {self._ended()}", _ADVICE)

    def _ended(self) -> str:
        """End FFmpeg if it runs; return what it said last."""
        running, self._running = self._running, None
        if running is None:
            return "it is closed"
        running.kill_group()
        running.end.close()
        return running.ended()


def checked_tool(required: str) -> VmafTool:
    """Return this machine's FFmpeg with libvmaf. Raises EngineUnfit: there is none, or it has another version."""
    tool = vmaf_tool()
    if tool is not None and tool.version == required:
        return tool
    here = "no FFmpeg with libvmaf is here" if tool is None else f"FFmpeg {tool.version} measures VMAF here"
    message = f"{here}, but the job was planned with {required}"
    raise EngineUnfit(message, "Install the same packages, with the extra 'quality', on every node: docs/nodes.md.")


def scores_of(log: bytes) -> list[int]:
    """Return each picture's VMAF in ``UNITS``, from libvmaf's CSV log. Raises EncoderFailed: no readable log."""
    try:
        head, *rows = [line.split(",") for line in log.decode().splitlines() if line]
        column = head.index("vmaf")
        return [min(max(round(Decimal(row[column]) * UNITS), 0), _MOST) for row in rows]
    except (ValueError, IndexError, ArithmeticError) as error:
        raise EncoderFailed("the FFmpeg that measures VMAF ended without its results", _ADVICE) from error


def _arguments(picture: VideoFormat, grey: str, log: int, threads: int) -> Sequence[str]:
    planar = grey.replace("gray", "yuv444p")
    graph = _SERIES.format(planar=planar, threads=threads, log=Path("/proc/self/fd", str(log)))
    shape = ("-video_size", f"{picture.width}x{picture.height}", "-pixel_format", grey)
    return ("-threads", "1", "-f", "rawvideo", *shape, "-i", "pipe:0", "-lavfi", graph, "-f", "null", "-")
