"""What a command that runs as a job of a queue reports to its driver."""

import json
import os
from contextlib import suppress


def has_driver() -> bool:
    """Return whether this command runs as a job of a queue."""
    from ..cluster.fleet_variables import FAILURE

    return os.environ.get(FAILURE, "").isdecimal()


def tell_driver(**facts: object) -> None:
    """Write facts to the file that the driver reads; without a driver, do nothing.

    A later fact replaces an earlier fact of the same name.
    """
    from ..cluster.fleet_variables import FAILURE, FAILURE_BYTES_MAX

    if has_driver():
        descriptor = int(os.environ[FAILURE])
        with suppress(OSError, ValueError):
            before = os.pread(descriptor, FAILURE_BYTES_MAX, 0)
            told = {**json.loads(before or "{}"), **facts}
            os.pwrite(descriptor, json.dumps(told).encode().ljust(len(before)), 0)
