"""``make rehearsal``: jobs of two tenants on a cluster of three nodes whose parts are killed, one after the other.

Exits with 1 if a job, a bill or a share was not as promised, or something is left.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

from codecfleet.cluster.machine import cores
from tests.queue_cluster import obstacle

from .rehearsal import Plan, rehearse, tables


def main() -> int:
    """Run a rehearsal; print its tables and problems."""
    asked = _arguments()
    if reason := obstacle():
        print(f"no rehearsal: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes the cluster
    for name in [name for name in os.environ if name.startswith("CODECFLEET_")]:
        del os.environ[name]
    each = max(1, cores() // 8)  # few enough that a fault finds a film in its middle
    plan = Plan(asked.jobs, asked.media, asked.logs, each, asked.jobs_at_once or max(2, cores() // 16))
    began_s = time.monotonic()
    result = rehearse(plan, lambda line: print(f"{time.monotonic() - began_s:4.0f} s: {line}", flush=True))
    machine = f"{platform.platform()}, {os.cpu_count()} cores"
    result |= {"machine": machine, "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if asked.output is not None:
        asked.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(tables(result))
    for problem in result["problems"]:
        print(f"WRONG: {problem}")
    print(f"{result['wall_s']} s, {len(result['problems'])} problems")
    return bool(result["problems"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make rehearsal", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=200, metavar="N", help="transcode jobs, 24 or more (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs-at-once",
        type=int,
        metavar="N",
        help="jobs that each node runs at the same time; default: one for each 16 cores of the machine, two at least",
    )
    parser.add_argument(
        "--media",
        type=Path,
        metavar="FOLDER",
        help="films to encode, one of ten seconds at least; default: small clips",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result here, as JSON")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="copy the nodes' logs into this folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
