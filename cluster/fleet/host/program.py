"""The host's program: starts its first worker before it loads anything else, and then serves a pool."""

from typing import TYPE_CHECKING

from ...process.process import WORKER, StartedProcess, start_program
from ...process.program import begin
from ...ray.ray_environment import may_begin_without_ray

if TYPE_CHECKING:
    from ..client_name import ClientName
    from ..leases.connected_pool import ConnectedPool


class FirstWorker:
    """Starts workers' processes; the first one at once, as it takes as long to load as this process."""

    def __init__(self) -> None:
        self._spare: StartedProcess | None = start_program(WORKER)

    def __call__(self) -> StartedProcess:
        """Return the first process, or start another."""
        spare, self._spare = self._spare, None
        return spare or start_program(WORKER)


def first_worker(address: str | None, dlas: int) -> FirstWorker | None:
    """Return what starts workers where work may run here before there is a Ray; None elsewhere."""
    return None if dlas or not may_begin_without_ray(address) else FirstWorker()


def main() -> None:
    """Run a fleet's host; its settings are ``running``'s."""
    end, settings = begin()
    address, _, dlas, _ = settings
    start_process = first_worker(address, dlas)
    from ..leases.connected_pool import ConnectedPool  # noqa: PLC0415 - loaded beside the worker
    from .running import serve  # noqa: PLC0415 - as above

    def pool_of(address: str | None, slots: int | None, *, dlas: int, name: "ClientName") -> "ConnectedPool":
        return ConnectedPool(address, slots, dlas=dlas, name=name, start_process=start_process)

    serve(pool_of, end, settings)
