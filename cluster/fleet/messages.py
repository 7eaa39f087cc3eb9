"""What a fleet and the host of its workers say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from ..process.messages import Buffer, Request
from .pool import Asked, PoolState
from .run import Doubt, RunProgress

BEAT_S: Final = 0.25
"""How often a host says how it is, which also shows that it is alive."""
CLOSING_S: Final = 5.0
"""How long closing the pool may take: a cluster may be out of reach."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A result, and where it was made."""

    result: Any
    worker: str
    file: str


class HostSide(Protocol):
    """What a host does for one fleet."""

    async def start(self) -> None:
        """Start the pool."""

    async def keep(self, content: Buffer) -> None:
        """Keep bytes that many pieces of work need: the next of ``HostedWork.blobs``."""

    async def run(self, work: "HostedWork") -> WorkDone:
        """Run work."""

    async def give_up(self, run: int, why: str) -> None:
        """Give a run up, if it still runs."""

    async def set_demand(self, job: str, demand: Asked | None) -> None:
        """Set what a job wants."""

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a job would be placed."""

    async def files_address(self) -> str:
        """Return where workers on other machines read files of this one."""

    async def doubt(self, doubt: Doubt) -> None:
        """Take a complaint about a device."""

    async def close(self) -> None:
        """End what the fleet has here, and hang up."""


class FleetSide(Protocol):
    """What a fleet hears from its host."""

    async def heard(self, beat: "Beat") -> None:
        """Take the host's state."""


@dataclass(frozen=True, slots=True)
class StartPool(Request[HostSide, None]):
    """Start the pool.

    Raises:
        FleetUnavailable: there is nothing to run on.
    """

    async def serve(self, server: HostSide) -> None:
        """See ``HostSide``; so in all that follows."""
        await server.start()


@dataclass(frozen=True, slots=True)
class KeepBlob(Request[HostSide, None]):
    """Keep bytes that many pieces of work need."""

    content: Buffer

    async def serve(self, server: HostSide) -> None:
        await server.keep(self.content)


@dataclass(frozen=True, slots=True)
class HostedWork(Request[HostSide, WorkDone]):
    """Run work; cancelled there if it is cancelled here."""

    run: int  # its number, by which it is named afterwards
    base: dict[str, Any]  # what a pool may read of the work
    packed: Buffer  # the work, pickled
    blobs: tuple[int, ...]  # the places of what it was pickled without

    async def serve(self, server: HostSide) -> WorkDone:
        return await server.run(self)


@dataclass(frozen=True, slots=True)
class GiveUp(Request[HostSide, None]):
    """Give a run up."""

    run: int
    why: str

    async def serve(self, server: HostSide) -> None:
        await server.give_up(self.run, self.why)


@dataclass(frozen=True, slots=True)
class SetDemand(Request[HostSide, None]):
    """Set what a job wants."""

    job: str
    demand: Asked | None

    async def serve(self, server: HostSide) -> None:
        await server.set_demand(self.job, self.demand)


@dataclass(frozen=True, slots=True)
class AskPreview(Request[HostSide, PlacementPreview]):
    """Return where a job would be placed."""

    demand: Demand

    async def serve(self, server: HostSide) -> PlacementPreview:
        return await server.preview(self.demand)


@dataclass(frozen=True, slots=True)
class FilesAddress(Request[HostSide, str]):
    """Return where workers on other machines read files of this one."""

    async def serve(self, server: HostSide) -> str:
        return await server.files_address()


@dataclass(frozen=True, slots=True)
class TellDoubt(Request[HostSide, None]):
    """Report a complaint about a device."""

    doubt: Doubt

    async def serve(self, server: HostSide) -> None:
        await server.doubt(self.doubt)


@dataclass(frozen=True, slots=True)
class Close(Request[HostSide, None]):
    """End what the fleet has at the host."""

    async def serve(self, server: HostSide) -> None:
        await server.close()


@dataclass(frozen=True, slots=True)
class Beat(Request[FleetSide, None]):
    """The host's state; one that comes also shows that the host is alive."""

    state: PoolState | None  # None where it has not changed since the last one
    progress: Mapping[int, RunProgress]  # of the runs that have a worker, by number

    async def serve(self, server: FleetSide) -> None:
        await server.heard(self)
