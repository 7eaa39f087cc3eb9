"""The interface of a worker: one process for one device, which can run several tasks at the same time.

A worker is a child process (``child_worker.py``) or a Ray actor (``actor_worker.py``); both run
``actors/worker/host.py``.
"""

from typing import Any, Protocol

from ...actors.device.work import Constraints
from ...actors.worker.heartbeat import Heartbeat
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome


class Worker(Protocol):
    """A worker process. Once the process is gone, every call raises an error of ``LossScope.PROCESS``."""

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: Any) -> Outcome[Any]:
        """Run packed work and return its outcome; raise an error only if the process is lost.

        Cancelling the call cancels the work. ``run`` is unique among all clients, and begins with the client's name.
        ``blobs`` are references from ``SupervisorClient.send``.
        """

    def cancel(self, which: str | GoneClients) -> None:
        """Cancel one run, even if it has not arrived yet, or all runs of clients that are gone. Does not wait."""

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        """Return the worker's state; a call with a supervisor's ``term`` also renews the worker.

        Raises OldTerm if the worker knows a newer supervisor.
        """

    def end(self) -> None:
        """End the process at once, without waiting.

        A process that is about to end itself waits for this call (``host.ANSWER_S``).
        """
