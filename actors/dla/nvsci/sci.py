"""Both libraries of NvSci as one session uses them."""

import ctypes

from .buffers import SciBuffers
from .library import Loader
from .syncs import SciSyncs


class NvSci:
    """Buffers and sync objects of one session, in modules of their own; ``OSError`` if a library is missing."""

    def __init__(self, load: Loader = ctypes.CDLL) -> None:
        self.buffers = SciBuffers(load)
        self.syncs = SciSyncs(load)

    def open(self) -> None:
        """Open both modules; ``NvSciFailure`` if NvSci refuses."""
        self.buffers.open()
        self.syncs.open()

    def close(self) -> None:
        """Close both, after everything made from them."""
        self.buffers.close()
        self.syncs.close()
