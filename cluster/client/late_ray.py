"""A private Ray that starts only where more processes than the first pay."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...errors import FleetUnavailable
from ..placement.model.demand import Demand, EncoderChoice
from ..placement.rates import usual_fps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..ray.embedded import Connection

START_S: Final = 5.0
"""How long Ray and a worker on it take to start, beside work that needs the cores (docs/speed.md)."""


SOONER: Final = "the processor has done it before a GPU's worker process is there"
"""Why a GPU takes no part in a short job."""


def more_processes_pay(demand: Demand, first_slots: int, *, has_gpus: bool = False) -> bool:
    """Return whether a job's remaining work ends sooner with workers that come after ``START_S``.

    With s of S slots at first and all from then on, W seconds of work of one slot end after
    ``(W + (S - s) * START_S) / S``, which is less than ``W / s`` exactly where ``W / s > START_S``. Work of unknown
    speed is taken to last. A GPU may help with segments that all have a slot already.
    """
    if len(demand.segments) <= first_slots and not (has_gpus and demand.may_use_gpu):
        return False
    fps = usual_fps(demand)
    busy_slots = min(first_slots, len(demand.segments))
    return fps == 0.0 or sum(demand.segments) / fps > START_S * busy_slots


class LateRay:
    """This machine's private Ray, which may never start: GPUs' workers run there too. Used from one event loop.

    Args:
        first_slots: how many slots there are without it.
        reach: starts it.
        has_gpus: whether the machine may have GPUs.
    """

    def __init__(
        self, first_slots: int, reach: "Callable[[], Awaitable[Connection]]", *, has_gpus: bool = False
    ) -> None:
        self.first_slots = first_slots
        self.has_gpus = has_gpus
        self._reach = reach
        self._is_wanted = False
        self._starting: asyncio.Future[Connection] | None = None
        self._connection: Connection | None = None
        self._refusal = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return lines for a job's report."""
        if self._refusal:
            return (f"Ray did not start, so there was one worker process: {self._refusal}",)
        return () if self._connection is None else self._connection.notes

    def bounded(self, demand: Demand) -> Demand:
        """Return a demand that fits the first process until one comes for which more of them pay, or GPUs."""
        self._is_wanted = self._is_wanted or self._pays(demand)
        return self.followed(demand)

    def followed(self, demand: Demand) -> Demand:
        """Return a demand bounded as those before it were; it decides nothing itself."""
        return demand if self._is_wanted else self._for_first(demand)

    def previewed(self, demand: Demand) -> Demand:
        """Return a demand as it would be bounded."""
        return demand if self._is_wanted or self._pays(demand) else self._for_first(demand)

    def _pays(self, demand: Demand) -> bool:
        return demand.needs_devices or more_processes_pay(demand, self.first_slots, has_gpus=self.has_gpus)

    def _for_first(self, demand: Demand) -> Demand:
        return replace(
            demand,
            workers_max=min(self.first_slots, demand.workers_max or self.first_slots),
            software_decode=demand.software_decode or SOONER,
            encoder=EncoderChoice.SOFTWARE,
        )

    async def start(self) -> "Connection":
        """Start it; another call waits for the same start.

        Raises:
            FleetUnavailable: it does not start.
        """
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._reach())
        try:
            self._connection = await asyncio.shield(self._starting)
        except FleetUnavailable as error:
            self._refusal = error.message
            raise
        return self._connection

    async def close(self) -> None:
        """End it, also in the middle of its start. Idempotent."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()
