"""The CPU time that each kind of process of a local Ray cluster has used."""

import os

from .processes import ProcessTree, command_line

__all__ = ["KINDS", "cpu_s_by_kind"]

KINDS = {
    "supervisor": "ray::SupervisorActor",
    "workers": "ray::RayWorker",
    "raylets": "/raylet",
    "GCS": "/gcs_server",
}
"""Text in the command line of each kind of process."""


def cpu_s_by_kind() -> dict[str, float]:
    """Return the CPU seconds of each kind of cluster process so far; all are descendants of this process."""
    found: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for process in ProcessTree(os.getpid()).look():
        program = command_line(process.pid).split(" ", 1)[0]
        for kind, name in KINDS.items():
            if name in program:
                found[kind] += process.cpu_s
    return found
