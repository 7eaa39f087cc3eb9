"""The cluster's supervisor in Ray, and its client.

The supervisor is one named, detached actor, which Ray restarts if it dies. A restarted supervisor learns its state from
workers and clients.
"""

import asyncio
import gc
import os
import time
from typing import Any, Final

from ....actors.background import Background
from ...logs.actions import LogAction
from ...logs.in_ray import begin_log_in_ray
from ...logs.writing import log
from ...placement.model.demand import Demand
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ...ray.private.nodes import ON_HEAD
from ...ray.private_ray import NAMESPACE
from ...ray.public.actors import kill_this_actor, make_actor, named_actor, put
from ...ray.public.nodes import this_node
from ...ray.sigterm import sigterm_kills
from ...shipping.serving import files_address, serve_files
from ...version import VERSION, refuse_client
from ...worker.actor_worker import ActorWorker
from ...worker.worker import Worker
from ...worker_names import WORKER_PREFIX, NodeId, StationId, WorkerId
from ..core.core import Core
from ..state.events import Order
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..state.terms import first_epoch
from ..status.history import History
from ..status.status import Status
from .client import SupervisorClient
from .runner import SupervisorRunner

SUPERVISOR: Final = "codecfleet-supervisor"  # the actor's name in codecfleet's namespace
RETIRE_LOOK_S = 1.0
FAILED_CODE = 75
CALLS_AT_ONCE: Final = 10_000  # every client keeps one call open that waits for changes


class SupervisorActor:
    """A cluster's supervisor; methods call ``SupervisorRunner``. Clients may call any method at any time."""

    def __init__(self, settings: SupervisorSettings, policy: Policy) -> None:
        sigterm_kills()
        # Placements create many values without cycles; with the default threshold, garbage collection takes 10 % of the
        # time.
        gc.set_threshold(100_000)
        # Ray runs this constructor on the event loop's thread, so the supervisor starts even if no client calls it.
        self._tasks = Background(_end_for_restart)
        self._opening: asyncio.Task[SupervisorRunner] = self._tasks.spawn(
            "start of the supervisor", self._open(settings, policy)
        )

    async def _open(self, settings: SupervisorSettings, policy: Policy) -> SupervisorRunner:
        # Imported here, because clients import this module but not these modules.
        from ..backends.ray_backend import RayBackend, claim_term
        from ..metrics.queue_watch import watch_queue
        from ..metrics.ray_metrics import ray_metrics

        begin_log_in_ray("supervisor")
        term = await asyncio.to_thread(claim_term)
        log(LogAction.SUPERVISOR_UP, f"supervisor of term {term} begins")
        core = Core(settings, policy, first_epoch(term), time.monotonic())
        backend = RayBackend(settings.fence_s, term)
        take = ray_metrics()
        runner = SupervisorRunner(backend, core, settings, take_samples=take, on_failure=lambda: os._exit(FAILED_CODE))
        await runner.open()
        self._tasks.spawn("retirement of the supervisor", _retire_when_idle(runner, settings))
        if settings.queue:
            self._tasks.spawn("looks at the queue", watch_queue(settings.queue, take))
        return runner

    async def version(self) -> str:
        return VERSION

    async def renew(self, version: str, report: ClientReport, wait_s: float) -> Grants:
        """Take a client's report; return its grants as soon as they change, or after ``wait_s``.

        Raises VersionRefused: the client's ``version`` differs from the supervisor's, which happens when the client had
        connected to a predecessor of this supervisor.
        """
        refuse_client(version, VERSION)
        return await (await self._runner()).renew(report, wait_s)

    async def depart(self, client: str) -> None:
        await (await self._runner()).depart(client)

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await (await self._runner()).probed_preview(demand)

    async def growth(self, demand: Demand) -> str:
        return (await self._runner()).growth(demand)

    async def ask(self, order: Order, node: NodeId) -> bool:
        return (await self._runner()).ask(order, node)

    async def status(self) -> Status:
        return (await self._runner()).status()

    async def events(self) -> bytes:
        return (await self._runner()).recorded()

    async def history(self, stations: tuple[StationId, ...]) -> History:
        return (await self._runner()).history(stations)

    async def _runner(self) -> SupervisorRunner:
        return await asyncio.shield(self._opening)


def _end_for_restart(what: str, error: BaseException) -> None:
    """End the process of a supervisor that cannot start or watch itself; Ray then starts another process."""
    log(LogAction.DEFECT, f"the supervisor's task failed: {what}", error=error)
    os._exit(FAILED_CODE)


async def _retire_when_idle(runner: SupervisorRunner, settings: SupervisorSettings) -> None:
    here = this_node()
    while runner.idle_s < settings.retire_s or not await runner.leading.leads():
        if runner.leading.over or runner.is_left(here):
            # Ray's kill would end the successor too, because for Ray both are one actor. A draining node waits until
            # this process exits; Ray then restarts the actor on another node.
            os._exit(FAILED_CODE)
        await asyncio.sleep(RETIRE_LOOK_S)
    if settings.autoscale is not None:
        await runner.resizing.withdraw()
    kill_this_actor()


class ActorClient(SupervisorClient):
    """Connects to the cluster's supervisor, and creates the supervisor if there is none."""

    what_next = "Look at `ray status` and at the log of the supervisor's node."

    def __init__(self, settings: SupervisorSettings, policy: Policy) -> None:
        self._settings = settings
        self._policy = policy
        self._actor: Any = None
        self._files: Any = None
        self._starting_files = asyncio.Lock()

    async def open(self) -> None:
        """Find or create the supervisor. Raises VersionRefused: the supervisor has another version of codecfleet."""
        self._actor = await asyncio.to_thread(_find_or_make, self._settings, self._policy)
        await refuse_others(self._actor)
        self.node = this_node()

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        grants: Grants = await self._actor.renew.remote(VERSION, report, wait_s)
        return grants

    async def depart(self, client: str) -> None:
        await self._actor.depart.remote(client)

    async def handle(self, worker: WorkerId) -> Worker:
        return ActorWorker(await asyncio.to_thread(named_actor, WORKER_PREFIX + worker))

    def send(self, content: bytes) -> Any:
        return put(content)

    def files_address(self, client: str) -> str:
        return files_address(client)

    async def serve_files(self, client: str) -> None:
        """Start the server of this node's files, once."""
        async with self._starting_files:
            if self._files is None:
                self._files = await asyncio.to_thread(serve_files, client)

    async def preview(self, demand: Demand) -> PlacementPreview:
        preview: PlacementPreview = await self._actor.preview.remote(demand)
        return preview

    async def close(self) -> None:
        """Close the file server; the supervisor keeps running for other clients."""
        self._files = None


async def refuse_others(supervisor: Any) -> None:
    """Check a supervisor's version of codecfleet. Raises VersionRefused: this process has another version."""
    refuse_client(VERSION, await supervisor.version.remote())


def _find_or_make(settings: SupervisorSettings, policy: Policy) -> Any:
    """Return the handle of the cluster's supervisor; the arguments apply only to a new supervisor."""
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
        options["resources"] = ON_HEAD  # on any other node, this actor would keep Ray from ending the node
    return make_actor(SupervisorActor, options, settings, policy)
