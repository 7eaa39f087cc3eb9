"""Both libraries of NvSci as one session uses them."""

import ctypes

from .buffers import SciBuffers
from .library import Loader
from .syncs import SciSyncs


class NvSci:
    """Buffers and sync objects of one session, in modules of their own.

    Args:
        load: opens a shared library by its name.

    Raises:
        OSError: a library is not on this machine.
    """

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self.buffers = SciBuffers(load)
        self.syncs = SciSyncs(load)

    def open(self) -> None:
        """Open both modules.

        Raises:
            NvSciFailure: NvSci refused.
        """
        self.buffers.open()
        self.syncs.open()

    def close(self) -> None:
        """Close both, after everything that was made in them."""
        self.buffers.close()
        self.syncs.close()
