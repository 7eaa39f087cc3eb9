"""The GPUs that the calling process itself uses. A GPU is opened on first use, and all users share it."""

from functools import partial

from ...actors.device.interface import WorkerDevice
from ...actors.shared_once import shared_once


@shared_once
def own_gpu(device: int | str | None = None, context: int | None = None) -> WorkerDevice:
    """Return a GPU, which may not be open yet; the arguments are for ``open_beside``, and default to the first GPU."""
    from ...actors.nvidia.gpu import Gpu, open_beside

    return Gpu(partial(open_beside, device, context))
