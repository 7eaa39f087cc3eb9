"""The settings that a fleet's processes read from the environment; child processes inherit them.

The command line checks the user's configuration (jobs/request/config.py) and sets the variables accordingly. A Python
program may set the variables itself.
"""

from collections.abc import Mapping
from typing import Final

from ..errors import UsageError

IDLE: Final = "CODECFLEET_IDLE_S"
POLICY: Final = "CODECFLEET_POLICY"  #: The path of a cluster's policy
AUTOSCALE: Final = "CODECFLEET_AUTOSCALE"  #: The path of a cluster's autoscaling file
QUEUE: Final = "CODECFLEET_QUEUE"  #: The queue of submitted jobs, whose figures the supervisor's metrics show
RAY: Final = "CODECFLEET_RAY"
WARM: Final = "CODECFLEET_WARM"
DEBUG: Final = "CODECFLEET_DEBUG"
LOG: Final = "CODECFLEET_LOG"
EVENTS: Final = "CODECFLEET_EVENTS"  #: The folder for supervisors' event files; if unset, no files are written
#: The descriptor of a file to which a queued job writes its failure and its use of resources, as JSON
FAILURE: Final = "CODECFLEET_FAILURE_FD"
#: The name of the socket on which the program that keeps the node takes orders; unset if the node runs no driver
KEEPER: Final = "CODECFLEET_KEEPER"
FAILURE_BYTES_MAX: Final = 1 << 16  #: At most this many bytes of the file of ``FAILURE`` are read
COMPAT: Final = "CODECFLEET_CUDA_COMPAT"
NO_COMPAT: Final = "never"


def idle_release_s(environment: Mapping[str, str]) -> float | None:
    """Return how many seconds a cluster's worker may be idle before it is released; None if unset.

    Raises UsageError if the variable is not a number of seconds.
    """
    if not (text := environment.get(IDLE, "")):
        return None
    try:
        idle_s = float(text)
    except ValueError:
        idle_s = -1.0
    if not 0 <= idle_s < float("inf"):
        raise UsageError(
            f"{IDLE} is not a number of seconds: {text}", "Correct the variable, or unset it; the default is 30."
        )
    return idle_s


def is_ray_first(environment: Mapping[str, str]) -> bool:
    """Return whether the environment asks for a private Ray to start before any work."""
    return environment.get(RAY, "") == "first"


def may_use_warm_fleet(environment: Mapping[str, str]) -> bool:
    """Return whether jobs on this machine may use a warm fleet that already runs."""
    return environment.get(WARM, "") != "never"


def compat_folder(environment: Mapping[str, str]) -> str:
    """Return an additional folder to search for a CUDA compatibility package; "" for none."""
    named = environment.get(COMPAT, "")
    return "" if named == NO_COMPAT else named


def may_use_compat(environment: Mapping[str, str]) -> bool:
    """Return whether workers may load a CUDA compatibility package that fits the machine."""
    return environment.get(COMPAT, "") != NO_COMPAT


def shows_tracebacks(environment: Mapping[str, str]) -> bool:
    """Return whether an error's traceback is printed before its message."""
    return environment.get(DEBUG, "") not in {"", "0", "false"}
