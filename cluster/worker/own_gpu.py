"""The calling process's GPU: opened on first use, shared by all its fleets."""

from functools import cache

from ...actors.device.interface import WorkerDevice


@cache
def own_gpu() -> WorkerDevice:
    """Return this process's GPU, opened or not."""
    from ...actors.nvidia.gpu import Gpu, open_beside

    return Gpu(open_beside)
