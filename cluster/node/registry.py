"""Lists this user's nodes on this machine: each listens on a socket in the directory of the warm fleets' sockets.

The kernel says which process listens, if that process is in this PID namespace. A process of another container is
therefore never mistaken for a node's process.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ...errors import FleetUnavailable
from ..fleet.meeting_place import NODE_PREFIX, MeetingPlace, leave, locked_place


@contextmanager
def registered(ends_within_s: int) -> Iterator[None]:
    """Let ``kept_nodes`` list this process during the block, if the directory can be used.

    The process may take ``ends_within_s`` seconds to end.
    """
    name = f"{NODE_PREFIX}{os.getpid()}-{ends_within_s}"
    with ExitStack() as listening:
        with suppress(FleetUnavailable, OSError), locked_place() as place:
            listening.enter_context(place.listen(name))
            listening.callback(leave, name, place.inode(name))
        yield


def kept_nodes() -> dict[int, int]:
    """Return {process: how many seconds it may take to end} of running nodes, and remove the sockets of killed nodes.

    Raises FleetUnavailable as ``locked_place`` does.
    """
    try:
        with MeetingPlace.open(make=False) as place:
            place.lock()
            found = {place.process_at(name): int(name.rpartition("-")[2]) for name in place.names(of_nodes=True)}
            place.remove_if_empty()
    except FileNotFoundError:
        return {}
    return {process: ends_within_s for process, ends_within_s in found.items() if process}
