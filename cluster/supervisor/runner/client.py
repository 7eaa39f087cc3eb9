"""The interface to a supervisor in this process (``SupervisorRunner``) or in a cluster (``ActorClient``)."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...worker.worker import Worker
from ...worker_names import NodeId, StationId, WorkerId
from ..state.messages import ClientReport, Grants
from ..status.history import History
from ..status.status import Status


class SupervisorClient(ABC):
    """Passes reports to a supervisor, and returns its grants; errors are not wrapped."""

    what_next: ClassVar[str]  # what to do if the supervisor cannot be reached
    node: NodeId | None = None  # the cluster's node on which this process runs; None if it is not known

    @abstractmethod
    async def open(self) -> None:
        """Connect to the supervisor, creating it if needed. May be called again after a failure."""

    @abstractmethod
    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        """Report a client's demands and held slots; return its grants when they change, or after ``wait_s``."""

    @abstractmethod
    async def depart(self, client: str) -> None:
        """Report that the client leaves."""

    @abstractmethod
    async def handle(self, worker: WorkerId) -> Worker:
        """Return a handle to a worker."""

    @abstractmethod
    def send(self, content: bytes) -> Any:
        """Store bytes where every worker can fetch them; return a reference for calls of workers."""

    @abstractmethod
    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a demand would be placed."""

    def status(self) -> Status | None:
        """Return the status of a supervisor in this process; None if the supervisor is elsewhere."""
        return None

    def history(self, stations: tuple[StationId, ...]) -> History:
        """Return the recent work of stations; an empty ``History`` if the supervisor is elsewhere."""
        del stations
        return History()

    def files_address(self, client: str) -> str:
        """Return the address at which ``serve_files`` serves this machine's files to workers elsewhere, or ""."""
        del client
        return ""

    async def serve_files(self, client: str) -> None:
        """Let workers elsewhere read this machine's files. Idempotent. Raises FleetUnavailable: no server can start."""
        del client

    def world_is_gone(self) -> str:
        """Return why the Ray that this client started is lost; "" while that Ray runs, or if none was started.

        Thread-safe.
        """
        return ""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; a supervisor in this process ends with all its workers. Idempotent."""
