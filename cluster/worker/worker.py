"""A worker, as those see it who give it work: one process for one device, which runs several pieces of work at a time.

There are two kinds: a child process of this one (``child_worker.py``), and a Ray actor (``actor_worker.py``). Both host
the same code (``ray_worker.py``).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from ...actors.device.work import Constraints
from .heartbeat import Heartbeat, WorkerFacts
from .outcome import Outcome


class Worker(Protocol):
    """One worker process. Once it is gone, every call raises what ``ray_failures.classify`` knows as its loss."""

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: Any) -> Outcome[Any]:
        """Run packed work and return its outcome, or raise only what the loss of the process is; cancelled with this.

        ``run`` names it, uniquely among all clients; a client's runs begin with its name. ``blobs`` are as
        ``SupervisorClient.send`` returned them.
        """
        ...

    def cancel(self, run: str) -> None:
        """Have a run end early, without waiting; one that has not come yet will not begin."""
        ...

    def answered(self) -> None:
        """Tell a worker that ends because of what broke in it that its last outcome has come: it waits for that."""
        ...

    async def progress(self, job: str) -> Mapping[str, int]:
        """Return the frames done by each running piece of work of ``job``, by label."""
        ...

    async def facts(self, term: int = 0) -> WorkerFacts:
        """Return its identity; for the supervisor of ``term``, as the calls below.

        Raises:
            OldTerm: the worker has heard of a newer one.
        """
        ...

    async def heartbeat(self, term: int = 0) -> Heartbeat:
        """Return its state, and renew it: one that is not renewed may end itself."""
        ...

    async def abandon(self, client: str, term: int = 0) -> None:
        """Cancel every run of a client that is gone."""
        ...

    async def abandon_others(self, clients: frozenset[str], term: int = 0) -> None:
        """Cancel every run of any client but ``clients``."""
        ...
