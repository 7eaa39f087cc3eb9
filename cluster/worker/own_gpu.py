"""The GPUs that the calling process uses itself: each is opened on first use, and shared by all its users."""

from functools import cache, partial

from ...actors.device.interface import WorkerDevice


@cache
def own_gpu(device: int | str | None = None, context: int | None = None) -> WorkerDevice:
    """Return a GPU, opened or not; the arguments are those of ``open_beside``. By default it is the first GPU."""
    from ...actors.nvidia.gpu import Gpu, open_beside

    return Gpu(partial(open_beside, device, context))
