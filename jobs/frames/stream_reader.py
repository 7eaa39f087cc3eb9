"""Reads the frames of a stream from another program: a thread takes the stream's pictures and copies them."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from typing import Final

from av.video.frame import VideoFrame

from ...actors.device.streams import PictureStream, StreamPicture
from ...actors.media.values import VideoFormat
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame
from ...errors import DeadlineMissed, UsageError
from ..request.options import build
from .request import FrameRequest, FramesReport, count_held
from .window import FramesEnd

AHEAD_FRAMES: Final = 4  #: The most pictures that are copied ahead; for a live source, old pictures are of little use
_NANOSECOND: Final = Fraction(1, 1_000_000_000)
_USUAL_RATE: Final = Fraction(25)
_LOOK_S: Final = 0.1  #: How long one call waits in the driver; closing waits for the call


_OPTIONS: Final = ("place", "every")


class StreamReader:
    """Consumes a stream: takes its pictures in a thread, from ``start`` to ``close``.

    If ``frame.index`` skips a number, the stream is a mailbox, in which a later picture has replaced that one. Raises
    UsageError: the stream is closed, has or had a consumer, or its handle does not belong to a stream; EngineUnfit:
    this machine cannot consume it; DeviceError: the device failed.
    """

    def __init__(self, stream: PictureStream, request: FrameRequest, wake: Callable[[], None]) -> None:
        self._stream = stream
        self._request = request
        self._wake = wake
        self.report = FramesReport(on_device=request.place == "device")
        self._changed = threading.Condition()
        self._ahead: deque[tuple[Frame, int]] = deque()
        self._is_stopped = False
        self._error: BaseException | None = None
        self._is_over = False
        self._started_ns = 0
        self._latest_s = 0.0
        self._thread = threading.Thread(target=self._work, name="codecfleet-stream-frames", daemon=True)
        self._consumer = stream.open_consumer(request.place)

    def start(self) -> None:
        """Begin to take frames."""
        self._thread.start()

    def poll(self) -> Frame | None:
        """Return the next frame; None if there is none yet, and ``wake`` will be called.

        Raises FramesEnd, or the error of the thread.
        """
        with self._changed:
            if self._ahead:
                frame, size_bytes = self._ahead.popleft()
                self.report.frames += 1
                count_held(self.report, -size_bytes)
                self._changed.notify_all()
                return frame
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise FramesEnd
            return None

    def stop(self) -> None:
        """Let the thread end soon. Any thread may call this. Idempotent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait until the consumer is disconnected. Idempotent."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._consumer.close()

    def _work(self) -> None:
        try:
            with closing(self._consumer):
                self._take_all()
        except BaseException as error:  # noqa: BLE001 - raised again in place of its frames
            self._error = error
        with self._changed:
            self._is_over = True
        self._wake()

    def _take_all(self) -> None:
        stream, consumer = self._stream, self._consumer
        self._latest_s = time.monotonic()
        while not self._is_stopped and not consumer.is_over:
            taken = consumer.take(min(_LOOK_S, stream.repeat_s or _LOOK_S), self._is_wanted)
            if taken is not None and (taken.is_new or taken.pixels is not None):
                self._latest_s = time.monotonic()
            if taken is not None and taken.pixels is not None:
                self._put(self._framed(taken, taken.pixels), taken.size_bytes)
            elif not consumer.is_over and time.monotonic() - self._latest_s >= stream.wait_s:
                message = f"the stream's producer gave no frame within {stream.wait_s:g} s"
                raise DeadlineMissed(message, "Check the producer, or give the stream a longer wait_s.")

    def _is_wanted(self, number: int, is_new: bool) -> bool:  # noqa: FBT001 - the stream's signature
        repeat_s = self._stream.repeat_s
        repeats = repeat_s is not None and time.monotonic() - self._latest_s >= repeat_s
        return (is_new or repeats) and (number - 1) % self._request.every == 0

    def _framed(self, taken: StreamPicture, pixels: VideoFrame | DevicePicture) -> Frame:
        ticks, tick = self._time(taken.number)
        rate = self._stream.fps or _USUAL_RATE
        return Frame(
            index=taken.number - 1,
            ticks=ticks,
            time_base=tick,
            start_ticks=0,
            format=VideoFormat(taken.width, taken.height, taken.pix_fmt, rate, colour=taken.colour),
            _picture=pixels,
            _to_host=self._consumer.to_host,
        )

    def _time(self, number: int) -> tuple[int, Fraction]:
        """Return a picture's time in ticks after the first picture, and the length of a tick."""
        if self._stream.fps is not None:
            return number - 1, 1 / self._stream.fps
        now_ns = time.monotonic_ns()
        self._started_ns = self._started_ns or now_ns
        return now_ns - self._started_ns, _NANOSECOND

    def _put(self, frame: Frame, size_bytes: int) -> None:
        with self._changed:
            while len(self._ahead) >= AHEAD_FRAMES and not self._is_stopped:
                self._changed.wait()
            self._ahead.append((frame, size_bytes))
            count_held(self.report, size_bytes)
        self._wake()


def stream_request(options: Mapping[str, object]) -> FrameRequest:
    """Return the request for a stream's frames.

    Raises UsageError: an option does not apply to streams, or is invalid.
    """
    others = sorted(set(options) - set(_OPTIONS))
    if others:
        raise UsageError(f"the frames of a stream have no options {', '.join(others)}", "Use only place and every.")
    return build(FrameRequest, {"source": "a stream", **options}, str, "docs/egl.md lists the options.")
