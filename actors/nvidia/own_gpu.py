"""The GPU of a process that may be a user's own program."""

from .gpu import Gpu, open_beside


class OwnGpu(Gpu):
    """The one device that CUDA shows first to this process, which may be a user's own program."""

    def __init__(self) -> None:
        super().__init__(open_beside)
