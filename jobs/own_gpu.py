"""The GPU of the calling process: opened when somebody wants it, and shared by all fleets of the process."""

from functools import cache

from ..actors.nvidia.gpu import Gpu, open_beside
from ..actors.nvidia.stdout_monitor import StdoutMonitor

__all__ = ["OwnGpu", "own_gpu"]


class OwnGpu(Gpu):
    """The one device that CUDA shows first to this process, which may be a user's own program."""

    def __init__(self) -> None:
        self.listening = StdoutMonitor()
        super().__init__(lambda: open_beside(self.listening.count))


@cache
def own_gpu() -> OwnGpu:
    """Return this process's GPU, opened or not."""
    return OwnGpu()
