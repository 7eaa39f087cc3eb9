"""Runs ``ray start``; ends when the process that keeps the node ends."""

import sys
from importlib.metadata import entry_points

from ...actors.process.running import end_with


def main() -> None:
    """Run ``ray``; the arguments are the id of the process that keeps the node, and then those of ``ray``."""
    _, keeper, *arguments = sys.argv
    end_with(int(keeper))
    sys.argv[:] = ["ray", *arguments]
    (ray,) = entry_points(group="console_scripts", name="ray")
    sys.exit(ray.load()())


if __name__ == "__main__":
    main()
