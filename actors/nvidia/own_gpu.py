"""The GPU of a process that may be a user's own program."""

from contextlib import AbstractContextManager

from .gpu import Gpu, open_beside
from .stdout_monitor import StdoutMonitor

__all__ = ["OwnGpu"]


class OwnGpu(Gpu):
    """The one device that CUDA shows first to this process, which may be a user's own program.

    Args:
        monitor: hears of wrong pictures.
    """

    def __init__(self, monitor: StdoutMonitor | None = None) -> None:
        self._monitor = monitor or StdoutMonitor()
        super().__init__(lambda: open_beside(self._monitor.count))

    def listening(self) -> AbstractContextManager[object]:
        """Read the process's standard output meanwhile: there PyNvVideoCodec names the wrong pictures."""
        return self._monitor
