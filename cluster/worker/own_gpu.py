"""The GPU of the calling process: opened by its first user, and shared by all fleets of the process."""

from functools import cache

from ...actors.device.interface import WorkerDevice

__all__ = ["own_gpu"]


@cache
def own_gpu() -> WorkerDevice:
    """Return this process's GPU, opened or not."""
    from ...actors.nvidia.own_gpu import OwnGpu  # noqa: PLC0415 - a process without a GPU's work does without it

    return OwnGpu()
