"""What of this machine a job pays for: its first worker process, further ones, and a private Ray for its GPUs."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ....errors import FleetUnavailable
from ...placement.model.demand import Demand, EncoderChoice
from ...placement.rates import usual_fps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...ray.embedded import Connection

PROCESS_S: Final = 1.0
"""How long another worker process takes to start, beside work that needs the cores (docs/speed.md)."""
RAY_S: Final = 5.0
"""How long Ray and a GPU's worker on it take to start, beside such work."""
SOONER: Final = "the processor has done it before a GPU's worker process is there"
"""Why a GPU takes no part in a short job."""


def more_processes_pay(demand: Demand, first_slots: int) -> bool:
    """Return whether a job's remaining work ends sooner with processes that come after ``PROCESS_S``.

    With s of S slots at first and all from then on, W seconds of work of one slot end after
    ``(W + (S - s) * PROCESS_S) / S``, which is less than ``W / s`` exactly where ``W / s > PROCESS_S``.
    """
    return len(demand.segments) > first_slots and _lasts(demand, first_slots, PROCESS_S)


def gpus_pay(demand: Demand, slots: int) -> bool:
    """Return whether a job that may use GPUs lasts on all of a machine's ``slots`` until they take part."""
    return demand.may_use_gpu and _lasts(demand, slots, RAY_S)


def _lasts(demand: Demand, slots: int, seconds: float) -> bool:
    """Return whether the remaining work keeps its slots busy for so long; work of unknown speed does."""
    fps = usual_fps(demand)
    return fps == 0.0 or sum(demand.segments) / fps > seconds * min(slots, len(demand.segments))


class LateRay:
    """This machine's private Ray, where GPUs' workers run, and which may never start. Used from one event loop.

    Args:
        first_slots: how many slots the first worker process has.
        slots: how many all processes have.
        reach: starts Ray.
        has_gpus: whether the machine may have GPUs.
    """

    def __init__(
        self, first_slots: int, slots: int, reach: "Callable[[], Awaitable[Connection]]", *, has_gpus: bool = False
    ) -> None:
        self.first_slots = first_slots
        self.has_gpus = has_gpus
        self._slots = slots
        self._reach = reach
        self._is_wanted = False
        self._is_first_enough = True
        self._starting: asyncio.Future[Connection] | None = None
        self._connection: Connection | None = None
        self._refusal = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return lines for a job's report."""
        if self._refusal:
            return (f"Ray did not start, so no GPU took part: {self._refusal}",)
        return () if self._connection is None else self._connection.notes

    def bounded(self, demand: Demand) -> Demand:
        """Return a demand that fits what is there until one comes for which more processes pay, or GPUs."""
        self._is_wanted = self._is_wanted or self._wants_ray(demand)
        self._is_first_enough = self._is_first_enough and not more_processes_pay(demand, self.first_slots)
        return self.followed(demand)

    def followed(self, demand: Demand) -> Demand:
        """Return a demand bounded as those before it were; it decides nothing itself."""
        return self._fitted(demand, has_ray=self._is_wanted, is_first_enough=self._is_first_enough)

    def previewed(self, demand: Demand) -> Demand:
        """Return a demand as it would be bounded."""
        return self._fitted(
            demand,
            has_ray=self._is_wanted or self._wants_ray(demand),
            is_first_enough=self._is_first_enough and not more_processes_pay(demand, self.first_slots),
        )

    def _wants_ray(self, demand: Demand) -> bool:
        return demand.needs_devices or (self.has_gpus and gpus_pay(demand, self._slots))

    def _fitted(self, demand: Demand, *, has_ray: bool, is_first_enough: bool) -> Demand:
        if has_ray:
            return demand
        if is_first_enough:
            demand = replace(demand, workers_max=min(self.first_slots, demand.workers_max or self.first_slots))
        if not self.has_gpus:
            return demand
        return replace(demand, software_decode=demand.software_decode or SOONER, encoder=EncoderChoice.SOFTWARE)

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
