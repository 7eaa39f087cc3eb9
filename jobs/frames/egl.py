"""Frames of an EGLStream as ``codecfleet.frames`` gives them: acquired in a thread, copied, and released at once."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from ...actors.media.values import VideoFormat
from ...actors.nvidia.egl import Acquired, ConsumerSession, EglStream, EndState, egl_cuda, is_gone
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame
from ...errors import DeadlineMissed, Unsupported, UsageError
from ..request.options import build
from .reader import FramesEnd
from .request import FrameRequest, FramesReport

AHEAD_FRAMES: Final = 4
"""Copied ahead at most: a live source's frames are of little use later."""
_NANOSECOND: Final = Fraction(1, 1_000_000_000)
_USUAL_RATE: Final = Fraction(25)
_LOOK_S: Final = 0.1
"""How long one call waits in the driver: closing waits for it."""


_OPTIONS: Final = ("place", "every")


class EglReader:
    """A stream's consumer: acquires its frames in a thread of its own, from ``start`` to ``close``.

    A number that is missing in ``frame.index`` is a frame that a mailbox replaced before it was taken.

    Raises:
        UsageError: the stream has its consumer, or is none.
        EngineUnfit, DeviceError: this machine has no EGL or CUDA, or they failed.
    """

    def __init__(self, stream: EglStream, request: FrameRequest, wake: Callable[[], None]) -> None:
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
        self._thread = threading.Thread(target=self._work, name="codecfleet-egl-frames", daemon=True)
        self._calls = egl_cuda()
        to_host = request.place == "host" and self._calls.is_integrated()
        self._session = ConsumerSession(self._calls, stream, in_system_memory=to_host)

    def start(self) -> None:
        """Begin to take frames."""
        self._thread.start()

    def poll(self) -> Frame | None:
        """Return the next frame, None when it is not there yet: the reader wakes its consumer later.

        Raises:
            FramesEnd: the producer is gone, and all frames were taken.
            Exception: what went wrong.
        """
        with self._changed:
            if self._ahead:
                frame, size_bytes = self._ahead.popleft()
                self.report.frames += 1
                self._hold(-size_bytes)
                self._changed.notify_all()
                return frame
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise FramesEnd
            return None

    def stop(self) -> None:
        """Have the thread end soon; callable from any thread. Idempotent."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait until the consumer is disconnected. Idempotent."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._session.close()

    def _work(self) -> None:
        try:
            self._take_all()
        except BaseException as error:  # noqa: BLE001 - raised where its frames would have come out
            self._error = error
        with self._changed:
            self._is_over = True
        self._wake()

    def _take_all(self) -> None:
        session, stream = self._session, self._stream
        with session:
            latest_s = time.monotonic()
            while not self._is_stopped and session.state is not EndState.ENDED:
                wait_s = min(_LOOK_S, stream.repeat_s or _LOOK_S)
                acquired = session.acquire(wait_s)
                now_s = time.monotonic()
                repeats = stream.repeat_s is not None and now_s - latest_s >= stream.repeat_s
                if acquired is not None:
                    latest_s = now_s if self._take(acquired, repeats=repeats) else latest_s
                elif not is_gone(stream) and now_s - latest_s >= stream.wait_s:
                    message = f"the stream's producer gave no frame within {stream.wait_s:g} s"
                    raise DeadlineMissed(message, "Look at the producer, or give the stream a longer wait_s.")

    def _take(self, acquired: Acquired, *, repeats: bool) -> bool:
        """Copy and release what was acquired; return whether the stream gave something to hand out."""
        is_wanted = (acquired.is_new or repeats) and not (acquired.number - 1) % self._request.every
        try:
            found = self._framed(acquired) if is_wanted else None
        finally:
            self._session.release()
        if found is not None:
            self._put(*found)
        return acquired.is_new or repeats

    def _framed(self, acquired: Acquired) -> tuple[Frame, int]:
        frame, calls, stream = acquired.frame, self._calls, self._session.cuda_stream
        picture = None if self._request.place == "host" else calls.copied_to_device(frame, stream)
        if picture is None and self._request.place == "device":
            raise Unsupported(f"no frame on the device is {frame.layout}", 'Use place="host" or place="auto".')
        found = picture or calls.copied_to_host(frame, stream)
        pix_fmt = found.pix_fmt if isinstance(found, DevicePicture) else frame.layout.pix_fmt
        ticks, tick = self._time(acquired)
        size = (frame.layout.width, frame.layout.height)
        format_ = VideoFormat(*size, pix_fmt, self._stream.fps or _USUAL_RATE, colour=frame.colour)
        made = Frame(
            index=acquired.number - 1,
            ticks=ticks,
            time_base=tick,
            start_ticks=0,
            format=format_,
            _picture=found,
            _to_host=calls.to_host,
        )
        return made, frame.layout.size_bytes

    def _time(self, acquired: Acquired) -> tuple[int, Fraction]:
        """Return a frame's time in ticks after the first one's, and the tick."""
        if self._stream.fps is not None:
            return acquired.number - 1, 1 / self._stream.fps
        now_ns = time.monotonic_ns()
        self._started_ns = self._started_ns or now_ns
        return now_ns - self._started_ns, _NANOSECOND

    def _put(self, frame: Frame, size_bytes: int) -> None:
        with self._changed:
            while len(self._ahead) >= AHEAD_FRAMES and not self._is_stopped:
                self._changed.wait()
            self._ahead.append((frame, size_bytes))
            self._hold(size_bytes)
        self._wake()

    def _hold(self, size_bytes: int) -> None:
        report = self.report
        report.held_bytes += size_bytes
        report.held_bytes_max = max(report.held_bytes_max, report.held_bytes)


def egl_request(options: Mapping[str, object]) -> FrameRequest:
    """Return what is asked of an EGLStream's frames.

    Raises:
        UsageError: an option is none of theirs, or makes no sense.
    """
    others = sorted(set(options) - set(_OPTIONS))
    if others:
        raise UsageError(f"the frames of an EGLStream have no {', '.join(others)}", "They have place and every.")
    return build(FrameRequest, {"source": "EGLStream", **options}, str, "docs/egl.md lists the options.")
