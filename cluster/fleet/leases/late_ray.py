"""Starts this machine's private Ray, which GPU workers need, with the first job that is long enough for a GPU."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ....actors.background import SharedCall
from ....errors import FleetUnavailable
from ...placement.model.demand import Demand, EncoderChoice
from ...placement.rates import usual_fps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...ray.embedded import Connection

RAY_S: Final = 5.0
"""How long Ray and the first GPU worker take to start while other work runs."""
SOONER: Final = "the CPU finishes the job before a GPU's worker process starts"
"""Why a short job uses no GPU."""


def gpus_pay(demand: Demand, slots: int) -> bool:
    """Return whether a job may use GPUs, and would take longer on the CPU than GPUs take to start.

    A job of unknown speed is assumed to be long.
    """
    fps = usual_fps(demand)
    lasts = fps == 0.0 or sum(demand.segments) / fps > RAY_S * min(slots, len(demand.segments))
    return demand.may_use_gpu and lasts


class LateRay:
    """This machine's private Ray, which may never start. Use it from one event loop.

    ``slots`` is how many slots the worker processes have; ``reach`` starts Ray.
    """

    def __init__(self, slots: int, reach: "Callable[[], Awaitable[Connection]]", *, has_gpus: bool = False) -> None:
        self.has_gpus = has_gpus
        self._slots = slots
        self._reach = reach
        self._is_wanted = False
        self._starting: SharedCall | None = None
        self._connection: Connection | None = None
        self._refusal = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return lines for a job's report."""
        if self._refusal:
            return (f"Ray did not start, so no GPU was used: {self._refusal}",)
        return () if self._connection is None else self._connection.notes

    def bounded(self, demand: Demand) -> Demand:
        """Return a demand, limited to software until a job needs GPUs or is long enough to justify starting Ray."""
        self._is_wanted = self._is_wanted or self._wants_ray(demand)
        return self.followed(demand)

    def followed(self, demand: Demand) -> Demand:
        """Return a demand, limited to software if ``bounded`` has not lifted the limit yet."""
        return demand if self._is_wanted else self._in_software(demand)

    def previewed(self, demand: Demand) -> Demand:
        """Return what ``bounded`` would return, without lifting the limit for later demands."""
        return demand if self._is_wanted or self._wants_ray(demand) else self._in_software(demand)

    def _wants_ray(self, demand: Demand) -> bool:
        return demand.needs_devices or (self.has_gpus and gpus_pay(demand, self._slots))

    def _in_software(self, demand: Demand) -> Demand:
        if not self.has_gpus:
            return demand
        return replace(demand, software_decode=demand.software_decode or SOONER, encoder=EncoderChoice.SOFTWARE)

    async def start(self) -> "Connection":
        """Start Ray once. Raises FleetUnavailable: two attempts failed; Cancelled: ``close`` was called."""
        if self._starting is None:
            self._starting = SharedCall(self._start(), "the start of Ray")
        await self._starting.wait()
        if self._connection is None:
            raise AssertionError(self._starting)
        return self._connection

    async def _start(self) -> None:
        try:
            try:
                self._connection = await self._reach()
            except FleetUnavailable:  # one of Ray's processes may have been killed: try once more
                self._connection = await self._reach()
        except FleetUnavailable as error:
            self._refusal = error.message
            raise

    async def close(self) -> None:
        """End Ray, even if it is still starting. Idempotent."""
        if self._starting is not None:
            await self._starting.cancel()
        if self._connection is not None:
            await self._connection.close()
