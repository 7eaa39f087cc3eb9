"""Polls a node's GPUs on a cluster: a Ray actor without resources, one for each node with GPUs.

The actor is separate from workers, because a node is polled before it has workers, and because a driver call may hang.
A hung actor is killed, and the next poll creates another one. ``ray`` is not imported here; the supervisor makes the
class an actor.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..probes.gpus.health_poll import HealthPoll
from ..probes.gpus.live_health import DeviceHealth
from ..probes.report.absence import Maybe
from ..ray.sigterm import sigterm_kills

_PARENT_FIELD = 1
"""The state and the parent follow the name in /proc/PID/stat (proc(5))."""


class HealthAgent:
    """Polls the node on which it runs."""

    def __init__(self) -> None:
        sigterm_kills()
        import pynvml  # noqa: PLC0415 - only nodes with GPUs need this import

        self._poll = HealthPoll(pynvml)

    def poll(self, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Return every device's health, or why NVML does not answer; ``pids`` are the node's workers."""
        return self._poll.poll(frozenset(pids) | frozenset(_children(frozenset(pids))))


def _children(pids: frozenset[int]) -> Iterator[int]:
    for entry in Path("/proc").iterdir() if pids else ():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):  # the process has ended since the poll began
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[_PARENT_FIELD]) in pids:
                yield int(entry.name)
