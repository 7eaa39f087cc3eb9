"""The cluster's supervisor in Ray: one named, detached actor, which Ray restarts when it dies.

It keeps only what workers and clients would report to its successor.
"""

import asyncio
import gc
import os
import time

from ...logs.actions import LogAction
from ...logs.in_ray import begin_log_in_ray
from ...logs.writing import log
from ...placement.model.demand import Demand
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ...ray.public.actors import kill_this_actor
from ...ray.public.nodes import this_node
from ...ray.sigterm import sigterm_kills
from ...version import VERSION, refuse_client
from ..core.core import Core
from ..state.events import Order
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..state.terms import first_epoch
from ..status.history import History
from ..status.status import Status
from .runner import SupervisorRunner

SUPERVISOR = "codecfleet-supervisor"
"""Its name in our namespace."""
RETIRE_LOOK_S = 1.0
FAILED_CODE = 75


class SupervisorActor:
    """A cluster's supervisor. Any client may call any method at any time."""

    def __init__(self, settings: SupervisorSettings, policy: Policy) -> None:
        sigterm_kills()
        gc.set_threshold(10_000)  # a placement makes many values without cycles, and searching them takes a tenth of it
        # Ray calls this on the event loop's thread, also after a restart, when no client may ever call.
        self._opening = asyncio.get_event_loop().create_task(self._open(settings, policy))
        self._opening.add_done_callback(_restart_if_failed)

    async def _open(self, settings: SupervisorSettings, policy: Policy) -> SupervisorRunner:
        # Imported here: clients import this module, and need none of it.
        from ...survey.ray_probe import probe_ray_node
        from ..backends.ray_backend import RayBackend, claim_term
        from ..metrics.ray_metrics import RayMetrics

        begin_log_in_ray("supervisor")
        term = await asyncio.to_thread(claim_term)
        log(LogAction.SUPERVISOR_UP, f"supervisor of term {term} begins")
        core = Core(settings, policy, first_epoch(term), time.monotonic())
        backend = RayBackend(settings.fence_s, probe_ray_node, term)
        runner = SupervisorRunner(
            backend, core, settings, take_samples=RayMetrics().take, on_failure=lambda: os._exit(FAILED_CODE)
        )
        await runner.open()
        self._retiring = asyncio.create_task(_retire_when_idle(runner, settings))
        return runner

    async def version(self) -> str:
        """Return its version of codecfleet."""
        return VERSION

    async def renew(self, version: str, report: ClientReport, wait_s: float) -> Grants:
        """Take a client's report; return its grants as soon as they change, or after ``wait_s``.

        Raises:
            VersionRefused: the client has another ``version``: it reached an earlier supervisor.
        """
        refuse_client(version, VERSION)
        return await (await self._runner()).renew(report, wait_s)

    async def depart(self, client: str) -> None:
        """Remove a client."""
        (await self._runner()).depart(client)

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed; waits for GPUs that were never probed."""
        return await (await self._runner()).probed_preview(demand)

    async def growth(self, demand: Demand) -> str:
        """Return which nodes would be asked for where such a job came, and why; "" where the cluster does not grow."""
        return (await self._runner()).growth(demand)

    async def ask(self, order: Order, node: str) -> bool:
        """Cordon, drain or uncordon a node for a user; False if no node, or several, match the name."""
        return (await self._runner()).ask(order, node)

    async def status(self) -> Status:
        """Return the full status."""
        return (await self._runner()).status()

    async def events(self) -> bytes:
        """Return the newest events and what was decided (``Recording``); b"" where none are kept."""
        return (await self._runner()).recorded()

    async def history(self, stations: tuple[str, ...]) -> History:
        """Return what these stations did lately, and how fast all were."""
        return (await self._runner()).history(stations)

    async def _runner(self) -> SupervisorRunner:
        return await asyncio.shield(self._opening)


def _restart_if_failed(opening: "asyncio.Task[SupervisorRunner]") -> None:
    """End the process of a supervisor that cannot start: Ray starts the next one."""
    if not opening.cancelled() and opening.exception() is not None:
        log(LogAction.DEFECT, "the supervisor could not begin", error=opening.exception())
        os._exit(FAILED_CODE)


async def _retire_when_idle(runner: SupervisorRunner, settings: SupervisorSettings) -> None:
    here = this_node()
    while runner.idle_s < settings.retire_s or not await runner.leading.leads():
        if runner.leading.over or runner.is_left(here):
            # Not by Ray's kill: for Ray its successor is the same actor. A node that drains is not given it, and waits
            # for all that runs there.
            os._exit(FAILED_CODE)
        await asyncio.sleep(RETIRE_LOOK_S)
    if settings.autoscale is not None:
        await runner.resizing.withdraw()
    kill_this_actor()
