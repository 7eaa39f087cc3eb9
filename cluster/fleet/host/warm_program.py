"""The warm fleet's program: starts its first worker before it loads anything else, and then serves a pool to many."""

import os
import sys

from ...process.program import begin
from .program import first_worker


def main() -> None:
    """Run a warm fleet; the settings are ``[slots, idle time in seconds]``."""
    end, (slots, idle_s) = begin()
    sys.path[:] = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is the folder it was started in
    # The names that programs send are absolute, and a folder in which a process stands cannot be unmounted.
    os.chdir("/")
    # Whatever cluster the environment names: a warm fleet is this machine's.
    start_process = first_worker("local", 0)
    from ..leases.connected_pool import ConnectedPool  # noqa: PLC0415 - loaded beside the worker
    from .warm_running import run  # noqa: PLC0415 - as above

    run(ConnectedPool("local", slots, start_process=start_process), idle_s, end)
