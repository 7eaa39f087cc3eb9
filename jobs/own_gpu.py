"""The GPU of the calling process: opened when somebody wants it, and shared by all fleets of the process."""

import os
import threading
from functools import cache
from types import TracebackType
from typing import Self

from ..actors.nvidia.cuda import Cuda
from ..actors.nvidia.gpu import Gpu, OpenedGpu, assemble_gpu, imported
from ..actors.nvidia.spoken_errors import SpokenErrors
from ..actors.nvidia.unpacking import open_unpacker

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
        super().__init__(self._opened_here)

    def _opened_here(self) -> OpenedGpu:
        # Before CUDA starts, if it has not: a dozen streams would wait behind each other in the default's 8 queues.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        cuda = Cuda(imported("cuda.bindings.driver", "cuda-python"))
        package = imported("PyNvVideoCodec", "PyNvVideoCodec")
        return assemble_gpu(cuda, package, open_unpacker(cuda), self.listening.count)


@cache
def own_gpu() -> OwnGpu:
    """Return this process's GPU, opened or not."""
    return OwnGpu()
