"""A worker, as those see it who give it work: one process for one device, which runs several works at a time.

There are two kinds: a child process of this one (``child_worker.py``), and a Ray actor (``actor_worker.py``). Both host
the same code (``actors/worker/host.py``).
"""

from typing import Any, Protocol

from ...actors.device.work import Constraints
from ...actors.worker.heartbeat import Heartbeat
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome


class Worker(Protocol):
    """One worker process. Once it is gone, every call raises what ``ray_failures.classify`` knows as its loss."""

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: Any) -> Outcome[Any]:
        """Run packed work and return its outcome, or raise only what the loss of the process is; cancelled with this.

        ``run`` names it, uniquely among all clients; a client's runs begin with its name. ``blobs`` are as
        ``SupervisorClient.send`` returned them.
        """
        ...

    def cancel(self, which: str | GoneClients) -> None:
        """Cancel one run, also one that has not arrived yet, or those of clients that are gone; does not wait."""
        ...

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        """Return its state. Its supervisor gives its ``term``, which renews it: one that is not renewed may end itself.

        Raises:
            OldTerm: the worker knows of a newer supervisor.
        """
        ...

    def end(self) -> None:
        """End the process at once, without waiting. One that ends because of what broke in it may wait for this."""
        ...
