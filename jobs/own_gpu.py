"""The GPU of the calling process: opened when somebody wants it, and shared by all fleets of the process."""

import threading
from functools import cache
from types import TracebackType
from typing import Self

from ..actors.nvidia.gpu import Gpu, open_beside
from ..actors.nvidia.spoken_errors import SpokenErrors

__all__ = ["Listening", "OwnGpu", "own_gpu"]


class Listening:
    """Hears of wrong pictures only while somebody decodes: a program's own output must not wait in between.

    Safe from any thread.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._spoken: SpokenErrors | None = None
        self._earlier = 0
        self._users = 0

    def count(self) -> int:
        """Return how many pictures were said to be wrong so far; listens from now on if nobody did."""
        with self._lock:
            if self._spoken is None:
                self._spoken = SpokenErrors(self._descriptor)
            return self._earlier + self._spoken.count()

    def __enter__(self) -> Self:
        """Note somebody who is going to decode."""
        with self._lock:
            self._users += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note that he is done; with the last one, standard output is given back what it was."""
        with self._lock:
            self._users -= 1
            if not self._users and self._spoken is not None:
                self._earlier += self._spoken.count()
                self._spoken.close()
                self._spoken = None


class OwnGpu(Gpu):
    """The one device that CUDA shows first to this process, which may be a user's own program."""

    def __init__(self) -> None:
        self.listening = Listening()
        super().__init__(lambda: open_beside(self.listening.count))


@cache
def own_gpu() -> OwnGpu:
    """Return this process's GPU, opened or not."""
    return OwnGpu()
