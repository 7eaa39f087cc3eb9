"""Runs ``ray start``; ends when the process that keeps the node ends."""

import os
import signal
import sys
import threading
from importlib.metadata import entry_points

from ...actors.process.running import end_with
from ..ray.private.lost_gpu import lost_gpu_allowed
from ..ray.private.nodes import drain_for


def main() -> None:
    """Run ``ray``.

    The arguments are the id of the process that keeps the node, the descriptor on which its orders arrive, and
    ``ray``'s own arguments.
    """
    _, keeper, orders, *arguments = sys.argv
    end_with(int(keeper))
    os.set_inheritable(int(orders), False)  # noqa: FBT003 - Python's own argument
    threading.Thread(target=_obey, args=(int(orders),), daemon=True).start()
    sys.argv[:] = ["ray", *arguments]
    (ray,) = entry_points(group="console_scripts", name="ray")
    with lost_gpu_allowed():
        sys.exit(ray.load()())


def _obey(orders: int) -> None:
    """Drain the node for the number of seconds in each line; a second line shortens the drain."""
    with os.fdopen(orders) as lines:
        for seconds in lines:
            drain_for(int(seconds))
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
