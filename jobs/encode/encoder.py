"""From frames that a user has to one file: an encoder, a clock and a muxer, all in one thread."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors.device.interface import WorkerDevice
from ...actors.encode.session import EncodedPacket
from ...actors.encode.settings import Codec
from ...errors import ProofFailed, UsageError
from ..carry.containers import Container
from ..join.proof import file_sha256, shown_frames
from .clock import FrameClock, measured_rate
from .file import FrameFile
from .request import EncodeReport, EncodeRequest
from .session import PictureSession

if TYPE_CHECKING:
    from .inputs import Offered


PEEK_FRAMES: Final = 2  #: Frames with own times that are read before opening: the first two give the rate


class FrameEncoder:
    """Encodes frames into a file. One thread calls all of it but ``cancel`` and ``report``."""

    def __init__(
        self,
        request: EncodeRequest,
        codec: Codec,
        container: Container,
        path: Path,
        *,
        device: Callable[[], WorkerDevice],
    ) -> None:
        self._request = request
        self._container = container
        self._path = path
        self._pictures = PictureSession(request, codec, device=device)
        self._peeked: list[Offered] = []
        self._file: FrameFile | None = None
        self._cancelled = False

    def add(self, item: object) -> None:
        """Take the next frame. Raises UsageError: it does not fit, or has no time; CodecfleetError: encoding failed."""
        offered = self._pictures.read(item)
        if self._file is not None:
            _write(self._file, self._pictures.encode(offered))
            return
        self._peeked.append(offered)
        if self._request.fps is not None or len(self._peeked) == PEEK_FRAMES:
            self._begin()

    def add_all(self, items: Iterable[object]) -> None:
        """Take all frames there are, until cancelled."""
        for item in items:
            if self._cancelled:
                return
            self.add(item)

    def finish(self) -> None:
        """Write what the encoder still holds, and close the file. Raises UsageError: no frame; CodecfleetError."""
        file = self._file or self._begin()
        _write(file, self._pictures.session.finish())
        file.finish()
        self._pictures.close()

    def cancel(self) -> None:
        """Take no more frames; callable from any thread."""
        self._cancelled = True

    def abandon(self) -> None:
        """Give up whatever is open; the caller deletes the file."""
        self._peeked = []
        if self._file is not None:
            self._file.abandon()
        self._pictures.close()

    def report(self, began: float) -> EncodeReport:
        """Read the file back and report; ``began`` is a ``time.monotonic``. Raises ProofFailed: a frame is missing."""
        if self._file is None:
            raise ProofFailed("nothing was encoded", "Give at least one frame.")
        pictures, settings = self._pictures, self._pictures.settings
        shown = shown_frames(self._path, self._container, self._file.joined, pictures.taken)
        return EncodeReport(
            output=self._request.output,
            codec=settings.codec.value,
            encoder=settings.implementation,
            from_device=pictures.from_device,
            fallback=pictures.fallback,
            width=settings.format.width,
            height=settings.format.height,
            pix_fmt=settings.format.pix_fmt,
            frames_in=pictures.taken,
            frames_out=shown,
            duration_s=pictures.clock.length_s + 1 / settings.format.frame_rate,
            output_bytes=self._path.stat().st_size,
            output_sha256=file_sha256(self._path),
            wall_s=time.monotonic() - began,
            substitute=pictures.substitute,
        )

    def _begin(self) -> FrameFile:
        if not self._peeked:
            raise UsageError("there are no frames to encode", "Give one at least.")
        clock = FrameClock(self._peeked, fps=self._request.fps, time_base=self._request.time_base)
        pictures = self._pictures
        pictures.open(self._peeked[0], clock, self._request.fps or measured_rate(self._peeked))
        session = pictures.session
        self._file = FrameFile(
            self._path,
            self._container,
            pictures.settings,
            extradata=session.extradata,
            reorder_frames=session.reorder_frames,
        )
        peeked, self._peeked = self._peeked, []
        for offered in peeked:
            _write(self._file, pictures.encode(offered))
        return self._file


def _write(file: FrameFile, packets: list[EncodedPacket]) -> None:
    for packet in packets:
        file.write(packet)
