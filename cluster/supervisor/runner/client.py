"""A client's connection to its supervisor: in its own process, or the cluster's actor."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ...placement.model.demand import Demand
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ...ray.private.nodes import ON_HEAD
from ...ray.private_ray import NAMESPACE
from ...ray.public.actors import make_actor, named_actor, put
from ...shipping.serving import ServedFiles, serve_files
from ...version import VERSION, refuse_client
from ...worker.actor_worker import ActorWorker
from ...worker.worker import Worker
from ...worker_names import WORKER_PREFIX
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..status.history import History
from ..status.status import Status
from .actor import SUPERVISOR, SupervisorActor
from .runner import SupervisorRunner


class SupervisorClient(ABC):
    """Carries reports to a supervisor and grants back; errors are raised as they are."""

    what_next: ClassVar[str]
    """What to do where it cannot be reached."""

    @abstractmethod
    async def open(self) -> None:
        """Reach the supervisor, creating it if needed. May be called again after a failure."""

    @abstractmethod
    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        """Report what the client wants and holds; return what it may use."""

    @abstractmethod
    async def depart(self, client: str) -> None:
        """Report that the client leaves."""

    @abstractmethod
    async def handle(self, worker: str) -> Worker:
        """Return a worker, to be called."""

    @abstractmethod
    def send(self, content: bytes) -> Any:
        """Store bytes where every worker can fetch them; return a reference for calls of workers."""

    @abstractmethod
    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed."""

    def status(self) -> Status | None:
        """Return the status of a supervisor in this process; None where it is elsewhere."""
        return None

    def history(self, stations: tuple[str, ...]) -> History:
        """Return what stations did, as a supervisor in this process knows it; nothing where it is elsewhere."""
        del stations
        return History()

    async def serve_files(self, client: str) -> str:
        """Return where workers on other machines read files of this one, for the connection of that name; "" for none.

        Raises:
            FleetUnavailable: nothing can be started that would read them.
        """
        del client
        return ""

    def world_is_gone(self) -> str:
        """Return why the Ray that this client started is lost; "" while it is not, and for another Ray. Thread-safe."""
        return ""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; a supervisor in this process ends with all its workers. Idempotent."""


class LocalClient(SupervisorClient):
    """Connects to a supervisor in this process."""

    what_next = "Run it again; `codecfleet doctor` tells what is wrong with this machine."

    def __init__(self, runner: SupervisorRunner) -> None:
        self._runner = runner
        self._opened = False

    async def open(self) -> None:
        if not self._opened:
            self._opened = True
            await self._runner.open()

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        return await self._runner.renew(report, wait_s)

    async def depart(self, client: str) -> None:
        self._runner.depart(client)

    def world_is_gone(self) -> str:
        return self._runner.world_is_gone()

    async def handle(self, worker: str) -> Worker:
        return self._runner.handle(worker)

    def send(self, content: bytes) -> Any:
        return self._runner.send(content)

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Preview on this machine: no node joins it."""
        return await self._runner.preview_here(demand)

    def status(self) -> Status | None:
        return self._runner.status()

    def history(self, stations: tuple[str, ...]) -> History:
        return self._runner.history(stations)

    async def close(self) -> None:
        """End it, and all its workers."""
        await self._runner.close("the pool was closed")


class ActorClient(SupervisorClient):
    """Connects to the cluster's supervisor, which is created if there is none."""

    what_next = "Look at `ray status`, and at the log of the node it runs on."

    def __init__(self, settings: SupervisorSettings, policy: Policy) -> None:
        self._settings = settings
        self._policy = policy
        self._actor: Any = None
        self._files: ServedFiles | None = None
        self._starting_files = asyncio.Lock()

    async def open(self) -> None:
        """Find the supervisor, or create one.

        Raises:
            VersionRefused: it has another version of codecfleet.
        """
        self._actor = await asyncio.to_thread(find_or_make_supervisor, self._settings, self._policy)
        await refuse_others(self._actor)

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        grants: Grants = await self._actor.renew.remote(VERSION, report, wait_s)
        return grants

    async def depart(self, client: str) -> None:
        await self._actor.depart.remote(client)

    async def handle(self, worker: str) -> Worker:
        return ActorWorker(await asyncio.to_thread(named_actor, WORKER_PREFIX + worker))

    def send(self, content: bytes) -> Any:
        return put(content)

    async def serve_files(self, client: str) -> str:
        """Start the reader of this node's files with the first call."""
        async with self._starting_files:
            if self._files is None:
                self._files = await asyncio.to_thread(serve_files, client)
            return self._files.address

    async def preview(self, demand: Demand) -> PlacementPreview:
        preview: PlacementPreview = await self._actor.preview.remote(demand)
        return preview

    async def close(self) -> None:
        """Leave it running: others use it too. The reader of files ends."""
        self._files = None


async def refuse_others(supervisor: Any) -> None:
    """Call a cluster's supervisor, and return if it has our version of codecfleet.

    Raises:
        VersionRefused: it has another.
    """
    refuse_client(VERSION, await supervisor.version.remote())


def find_or_make_supervisor(settings: SupervisorSettings, policy: Policy) -> Any:
    """Return the handle of the cluster's supervisor; the arguments apply only to a new one."""
    options: dict[str, Any] = {
        "num_cpus": 0,
        "name": SUPERVISOR,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": CALLS_AT_ONCE,
    }
    if settings.autoscale is not None:
        options["resources"] = ON_HEAD  # Ray ends no node that runs an actor, not even one without CPUs
    return make_actor(SupervisorActor, options, settings, policy)


CALLS_AT_ONCE = 10_000
"""Every client keeps one call waiting for changes."""
