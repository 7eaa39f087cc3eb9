"""Gives a rendition's pictures to its sink in a thread, so that the renditions of a segment are encoded at once."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from ..bitstream.picture_messages import Messages
from ..closing import Closing
from .rendition import PictureSink

_CALLS: Final = 3
"""How many calls may wait for the sink, so that a picture that takes long does not hold up the other renditions."""


class SinkThread(Closing):
    """A sink that calls ``sink`` in a thread of its own, in order. An error of ``sink`` is raised by a later call."""

    def __init__(self, sink: PictureSink) -> None:
        self._sink = sink
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="codecfleet-rendition")
        self._calls: deque[Future[bool]] = deque()

    @property
    def done(self) -> int:
        """How many pictures the sink has done."""
        return self._sink.done

    def close(self) -> None:
        """End the thread after the call that it makes now."""
        self._thread.shutdown(cancel_futures=True)

    def take(self, ticks: int, picture: Any, messages: Messages = (), /) -> None:  # noqa: ANN401 - in host memory
        """Hand a picture, which the caller must not use any more, to the thread; wait while too many calls wait."""
        while len(self._calls) >= _CALLS:
            self._calls.popleft().result()
        self._hand(lambda: self._sink.take(ticks, picture, messages))

    def follow(self, pictures: Sequence[Any], /) -> None:
        """Hand the pictures of the seam to the thread."""
        given = tuple(pictures)
        self._hand(lambda: self._sink.follow(given))

    def drain(self) -> bool:
        """Drain the sink in its thread, with up to ``_CALLS`` calls queued; return False once nothing is left.

        This waits for the oldest call. Calls that are still queued when nothing is left do nothing.
        """
        while len(self._calls) < _CALLS:
            self._calls.append(self._thread.submit(self._sink.drain))
        return self._calls.popleft().result()

    def _hand(self, call: Callable[[], None]) -> None:
        def called() -> bool:
            call()
            return True

        self._calls.append(self._thread.submit(called))
