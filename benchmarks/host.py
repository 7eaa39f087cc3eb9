"""Time how long a fleet's host process takes to send results to your program, over the channel between the two.

``python benchmarks/host.py``; README.md beside this file says what each number means.
"""

import argparse
import asyncio
import os
import socket
import sys
import time
from dataclasses import dataclass

import numpy as np
from bench.machine import describe_run, described_lines
from bench.table import number, save_results, table_lines
from numpy.typing import NDArray

from codecfleet.actors.process.channel import Channel
from codecfleet.actors.process.messages import Request
from codecfleet.actors.task_owner import TaskOwner

SIZES = {"an answer without a picture": 1 << 10, "a raw 1080p frame": 1920 * 1080 * 3 // 2, "a segment": 4 << 20}


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    document = describe_run(None)
    print("\n".join(described_lines(document)))
    took_ms = {name: sorted(_timed(size, options.repeats)) for name, size in SIZES.items()}
    document |= {"bytes": SIZES, "took_ms": took_ms}
    rows = [
        [name, str(size), number(took_ms[name][0], 2), number(took_ms[name][options.repeats // 2], 2)]
        for name, size in SIZES.items()
    ]
    print("\n".join(["", *table_lines(["result", "bytes", "least ms", "median ms"], rows)]))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100, metavar="N", help="results of each size (default: 100)")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _timed(size: int, repeats: int) -> list[float]:
    """Return how many milliseconds each result took, from the request to its last byte."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        asyncio.run(Channel[None](theirs, Made(np.ones(size, np.uint8))).run())
        os._exit(0)
    theirs.close()
    try:
        return asyncio.run(_ask(Channel(ours), repeats))
    finally:
        os.waitpid(child, 0)


class Made:
    """Has a result ready."""

    def __init__(self, result: NDArray[np.uint8]) -> None:
        self.result = result


@dataclass(frozen=True, slots=True)
class AskForIt(Request[Made, NDArray[np.uint8]]):
    """Ask for the result."""

    async def serve(self, server: Made) -> NDArray[np.uint8]:
        """Return the result."""
        return server.result


async def _ask(channel: Channel[Made], repeats: int) -> list[float]:
    took_ms = []
    async with TaskOwner() as owner:
        owner.start(channel.run(), "the channel")
        for _ in range(repeats):
            began_s = time.perf_counter()
            await channel.call(AskForIt())
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    channel.close()
    return took_ms


if __name__ == "__main__":
    sys.exit(main())
