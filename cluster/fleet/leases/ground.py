"""Describes a pool's connection: a supervisor, and properties of the supervisor's machines."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from ...supervisor.runner.client import SupervisorClient
from .late_ray import LateRay


async def _release_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A connected supervisor, and facts about its machines."""

    supervisor: SupervisorClient  # the pool opens and closes the supervisor
    eager: int = 0  # how many slots get permanent workers immediately; if 0, workers start with the first job
    is_alone: bool = False  # whether no other client has workers on these machines
    late: LateRay | None = None  # a private Ray that starts with the first long job; None if Ray already runs
    notes: Callable[[], tuple[str, ...]] = tuple  # returns lines for every job's report
    killed_for_memory: Callable[[], bool] = bool  # returns whether the OOM killer explains a worker's death
    release: Callable[[], Awaitable[None]] = _release_nothing  # called after the supervisor is closed

    async def reach(self) -> Self:
        """Return this ground, which is connected already."""
        return self
