"""The warm fleet's program: starts its first worker before it loads anything else, and then serves a pool to many."""

import json
import os
import socket
import sys

from .program import first_worker


def main() -> None:
    """Run ``[descriptor, its starter, the starter's program, slots, idle time in seconds]``: JSON, one argument."""
    descriptor, _, program, slots, idle_s = json.loads(sys.argv[1])
    sys.path[:] = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is the folder it was started in
    # The names that programs send are absolute, and a folder in which a process stands cannot be unmounted.
    os.chdir("/")
    # Whatever cluster the environment names: a warm fleet is this machine's.
    start_process = first_worker("local", 0)
    from ..leases.connected_pool import ConnectedPool  # noqa: PLC0415 - loaded beside the worker
    from .warm_running import run  # noqa: PLC0415 - as above

    sys.argv[:] = program  # Ray's workers look for modules beside it
    run(ConnectedPool("local", slots, start_process=start_process), idle_s, socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main()
