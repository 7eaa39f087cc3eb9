"""A process that is of no use without the one that started it."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""linux/prctl.h"""


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of ``parent`` that started it ends.

    A process that hangs in a call would not notice the end of a connection.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it had ended before
        os._exit(1)
