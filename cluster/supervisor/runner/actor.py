"""The cluster's supervisor as Ray sees it: one detached actor with a name, which Ray restarts when it dies.

``ray`` is not imported here: the class becomes an actor where a client creates it, after the environment that Ray
reads at import is settled. Its decisions are in ``core.py``; it keeps nothing that workers and clients would not tell
the next one.
"""

import asyncio
import logging
import os
import time
from typing import Any

from ...placement.model.demand import Demand
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ..state.events import Order
from ..state.messages import ClientReport, Grants
from ..state.settings import SupervisorSettings
from ..status.status import Status
from .runner import SupervisorRunner

__all__ = ["SUPERVISOR", "SupervisorActor"]

SUPERVISOR = "codecfleet-supervisor"
"""Its name in our namespace."""
RETIRE_LOOK_S = 1.0
OPENING_FAILED_CODE = 75
TICKS_PER_S = 1000

_log = logging.getLogger("codecfleet.supervisor")


class SupervisorActor:
    """The supervisor of a cluster. Every method may be called by any client at any time."""

    def __init__(self, settings: SupervisorSettings, policy: Policy) -> None:
        self._settings = settings
        self._policy = policy
        # Ray calls this on the event loop's thread, after a restart too, when no call of a client may ever come.
        self._opening = asyncio.get_event_loop().create_task(self._open())
        self._opening.add_done_callback(_restart_if_failed)

    async def _open(self) -> SupervisorRunner:
        # Only here: this module is importable where Ray is not to be imported.
        from ...survey.ray_probe import probe_ray_node  # noqa: PLC0415
        from .ray_backend import RayBackend  # noqa: PLC0415
        from .wiring import make_core  # noqa: PLC0415

        # Later than any epoch of a supervisor before this one: those began earlier, and count by ones.
        first_epoch = int(time.time() * TICKS_PER_S)
        core = make_core(self._settings, self._policy, first_epoch, time.monotonic())
        runner = SupervisorRunner(RayBackend(self._settings.fence_s, probe_ray_node), core, self._settings)
        await runner.open()
        self._retiring = asyncio.create_task(self._retire_when_idle(runner))
        return runner

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        """Hear a client; return what it may use as soon as that changes, or after ``wait_s``."""
        return await (await self._runner()).renew(report, wait_s)

    async def depart(self, client: str) -> None:
        """Hear a client's goodbye."""
        (await self._runner()).depart(client)

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed; waits for GPUs that were never probed."""
        return await (await self._runner()).probed_preview(demand)

    async def ask(self, order: Order, node: str) -> bool:
        """Cordon, drain or open a node as a user asks; False if no node, or several, answer to that name."""
        return (await self._runner()).ask(order, node)

    async def status(self) -> Status:
        """Return everything a person may want to see."""
        return (await self._runner()).status()

    async def _runner(self) -> SupervisorRunner:
        return await asyncio.shield(self._opening)

    async def _retire_when_idle(self, runner: SupervisorRunner) -> None:
        while runner.idle_s < self._settings.retire_s:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(RETIRE_LOOK_S)
        _end_this_actor()


def _restart_if_failed(opening: "asyncio.Task[SupervisorRunner]") -> None:
    """A supervisor that cannot begin ends its process: Ray starts the next one, which may."""
    if not opening.cancelled() and opening.exception() is not None:
        _log.error("the supervisor could not begin", exc_info=opening.exception())
        os._exit(OPENING_FAILED_CODE)


def _end_this_actor() -> None:
    import ray  # noqa: PLC0415 - inside an actor it is there

    me: Any = ray.get_runtime_context().current_actor
    ray.kill(me)
