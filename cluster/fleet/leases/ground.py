"""The supervisor of a pool with leases, and what else belongs to the connection."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from ...supervisor.runner.client import SupervisorClient
from .late_ray import LateRay


async def _release_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A supervisor that can be reached."""

    supervisor: SupervisorClient  # opened and closed by the pool
    eager: int = 0  # slots for which workers start at once, and stay; with 0 they start with the first job
    is_alone: bool = False  # no other client has workers on these machines
    late: LateRay | None = None  # set if Ray starts only when a job pays for it
    notes: Callable[[], tuple[str, ...]] = tuple  # lines for every job's report
    killed_for_memory: Callable[[], bool] = bool  # whether the kernel's OOM killer explains a worker's death just now
    release: Callable[[], Awaitable[None]] = _release_nothing  # called once the supervisor is closed

    async def reach(self) -> Self:
        """Return the ground itself: it is already connected."""
        return self
