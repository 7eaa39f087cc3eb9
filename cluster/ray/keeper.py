"""Tells the program that keeps a Ray node, from a process of that Ray, whether the node's driver of a queue may run.

The program has no connection to Ray, which might end it. Both processes belong to one user, so a signal reaches it.
"""

import os
import signal
from typing import Final

KEEPER: Final = "CODECFLEET_KEEPER"  #: The variable with the program's process id, which Ray's processes inherit
DRIVER_RESTS, DRIVER_RUNS = signal.SIGUSR1, signal.SIGUSR2
"""The signals after which the driver hands back its jobs and rests, and runs again."""


def tell_keeper(drains: bool) -> None:  # noqa: FBT001 - the only argument of a Ray task
    """Make the driver of this process's node rest while the node drains; other programs' nodes have no such driver."""
    if keeper := os.environ.get(KEEPER):
        os.kill(int(keeper), DRIVER_RESTS if drains else DRIVER_RUNS)
