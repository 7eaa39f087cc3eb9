"""One end of a channel without an event loop: sends and receives single values."""

import socket
import time
from typing import Any

from .messages import LENGTH, FrameKind, WireFrame, framed, header_of


class PlainEnd:
    """One end of a channel; ``send`` and ``receive`` block the calling thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, value: object) -> None:
        """Send a value. Raises OSError if the other side is gone, and any error of pickling the value."""
        for piece in framed(FrameKind.TELL, 0, value):
            self._end.sendall(piece)

    def receive(self, until_s: float | None = None) -> Any:  # noqa: ANN401 - any value that the other side sends
        """Return the next value, waiting until ``until_s`` by the monotonic clock, or for ever.

        Raises TimeoutError if no whole value came in time; EOFError or OSError if the other side is gone.
        """
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size, until_s))
        kind, number, sizes = header_of(self._exactly(size, until_s))
        return WireFrame(kind, number, [self._exactly(size, until_s) for size in sizes]).value()

    def _exactly(self, size: int, until_s: float | None) -> bytearray:
        content = bytearray(size)
        left = memoryview(content)
        while left:
            if until_s is not None and (left_s := until_s - time.monotonic()) <= 0:
                raise TimeoutError
            self._end.settimeout(None if until_s is None else left_s)
            received = self._end.recv_into(left)
            if received == 0:
                raise EOFError
            left = left[received:]
        return content
