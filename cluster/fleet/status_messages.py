"""What is asked of a supervisor, of a warm fleet or of a cluster: its status, and what stations did."""

from dataclasses import dataclass
from typing import Protocol

from ..process.messages import Request
from ..supervisor.status.history import History
from ..supervisor.status.status import Status


class SupervisorSide(Protocol):
    """What knows a supervisor of this machine."""

    async def status(self) -> Status | None:
        """Return its status."""

    async def history(self, stations: tuple[str, ...]) -> History:
        """Return what stations did."""


@dataclass(frozen=True, slots=True)
class ReadStatus(Request[SupervisorSide, Status | None]):
    """Return the status of the supervisor; None where there is none."""

    async def serve(self, server: SupervisorSide) -> Status | None:
        return await server.status()


@dataclass(frozen=True, slots=True)
class ReadHistory(Request[SupervisorSide, History]):
    """Return what stations did."""

    stations: tuple[str, ...]

    async def serve(self, server: SupervisorSide) -> History:
        return await server.history(self.stations)
