"""The calling process's GPUs: each opened on first use, shared by all its fleets."""

from functools import cache, partial

from ...actors.device.interface import WorkerDevice


@cache
def own_gpu(device: int | str | None = None, context: int | None = None) -> WorkerDevice:
    """Return a GPU of this process, opened or not: named as ``Cuda`` takes it, else the first."""
    from ...actors.nvidia.gpu import Gpu, open_beside

    return Gpu(partial(open_beside, device, context))
