"""Questions to a cluster, asked from a process of their own: one that holds Ray's driver dies with its node.

As a program it serves them, over one connection.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ...errors import FleetUnavailable, UsageError
from ..fleet.default import holds_ray
from ..fleet.status_messages import SupervisorSide
from ..fleet.warm import connection_to, find_warm
from ..node.listed import ListedNode
from ..placement.model.demand import Demand
from ..placement.model.inventory import Inventory
from ..probes.node import NodeReport, SilentNode
from ..process.child import Child, ChildDied
from ..process.messages import Request
from ..process.process import start_program
from ..process.program import begin, run_to_the_end, serve_parent
from ..ray.embedded import Connection, connect
from ..ray.ray_environment import named_cluster
from ..supervisor.state.events import Order
from ..supervisor.status.history import History
from ..supervisor.status.status import Status
from .probe import list_cluster, probe_cluster, survey_cluster
from .supervisor import order_node, read_events, read_growth, read_history, read_status

ServerT_co = TypeVar("ServerT_co", covariant=True)
ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")

PROGRAM: Final = __name__
_LOST: Final = "Look at `ray status` on its head node, and at this machine's Ray; then try again."


class AskDesk(Protocol[ServerT_co]):
    """Has a question answered."""

    async def __call__(self, question: Request[ServerT_co, ReplyT], /) -> ReplyT:
        """Return the answer.

        Raises:
            CodecfleetError: the question's own.
        """


class Desk(SupervisorSide):
    """Answers questions about the cluster at ``address``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._held: Connection | None = None

    async def reach(self) -> None:
        """Connect; the connection stays open until ``aclose``."""
        if self._held is None:
            self._held = await connect(self.address)

    async def status(self) -> Status | None:
        await self.reach()
        return await read_status(self.address)

    async def history(self, stations: tuple[str, ...]) -> History:
        await self.reach()
        return await read_history(self.address, stations) or History()

    async def aclose(self) -> None:
        """Release the connection. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()


@dataclass(frozen=True, slots=True)
class Reach(Request[Desk, None]):
    """Find out whether the cluster lets us in."""

    async def serve(self, server: Desk) -> None:
        """Connect; so do all that follow, first."""
        await server.reach()


@dataclass(frozen=True, slots=True)
class OrderNode(Request[Desk, None]):
    """Have the supervisor cordon, drain or uncordon a node."""

    order: Order
    node: str

    async def serve(self, server: Desk) -> None:
        await server.reach()
        await order_node(server.address, self.order, self.node)


@dataclass(frozen=True, slots=True)
class ProbeNodes(Request[Desk, Sequence[NodeReport | SilentNode]]):
    """Probe every node; ``fresh``: do not use what an earlier probe has found."""

    fresh: bool

    async def serve(self, server: Desk) -> Sequence[NodeReport | SilentNode]:
        await server.reach()
        return await probe_cluster(server.address, self.fresh)


@dataclass(frozen=True, slots=True)
class ListNodes(Request[Desk, Sequence[tuple[NodeReport | SilentNode, ListedNode]]]):
    """Return the nodes, as probed and as Ray knows them."""

    async def serve(self, server: Desk) -> Sequence[tuple[NodeReport | SilentNode, ListedNode]]:
        await server.reach()
        return await list_cluster(server.address)


@dataclass(frozen=True, slots=True)
class Survey(Request[Desk, Inventory]):
    """Return what placement knows of the nodes."""

    async def serve(self, server: Desk) -> Inventory:
        await server.reach()
        return await survey_cluster(server.address)


@dataclass(frozen=True, slots=True)
class ReadGrowth(Request[Desk, str]):
    """Return which nodes would be asked for, and why; "" for none."""

    demand: Demand

    async def serve(self, server: Desk) -> str:
        await server.reach()
        return await read_growth(server.address, self.demand)


@dataclass(frozen=True, slots=True)
class ReadEvents(Request[Desk, bytes]):
    """Return what the supervisor decided lately; b"" where it keeps no events, or there is none."""

    async def serve(self, server: Desk) -> bytes:
        await server.reach()
        return await read_events(server.address)


@dataclass(frozen=True, slots=True)
class Leave(Request[Desk, None]):
    """Disconnect."""

    async def serve(self, server: Desk) -> None:
        await server.aclose()


@asynccontextmanager
async def desk_of(address: str) -> AsyncIterator[AskDesk[Desk]]:
    """Have questions to a cluster answered; in a Ray driver or job by this process itself.

    Raises:
        FleetUnavailable: the process that holds Ray's driver ended, since its node or control service is gone.
    """
    if holds_ray():
        desk = Desk(address)

        async def ask(question: Request[Desk, ReplyT], /) -> ReplyT:
            return await question.serve(desk)

        try:
            yield ask
        finally:
            await desk.aclose()
        return
    try:
        process = start_program(PROGRAM, address)
    except OSError as error:
        message = f"the process that is to hold Ray did not start: {error}"
        raise FleetUnavailable(message, "Check the limits on memory and processes.") from None
    try:
        async with _ending(Child[Desk](process)) as child:
            yield child.call
            await child.call(Leave())
    except ChildDied as lost:
        raise FleetUnavailable(f"the connection to Ray at {address} was lost: {lost}", _LOST) from None


@asynccontextmanager
async def fleet_desk(address: str | None) -> AsyncIterator[AskDesk[SupervisorSide]]:
    """Have questions about a fleet answered: the named cluster's, else the warm fleet's.

    Raises:
        UsageError: no cluster is named, and no warm fleet of this code is up.
        FleetUnavailable: as for ``desk_of``; or the warm fleet ended.
    """
    if named := named_cluster(address):
        async with desk_of(named) as ask:
            await ask(Reach())
            yield ask
        return
    found, left_alone = await asyncio.to_thread(find_warm)
    if found is None:
        message = f"no cluster is named, and {left_alone or 'no warm fleet is up on this machine'}"
        raise UsageError(message, "Give --address, or set RAY_ADDRESS; `codecfleet up` brings a warm fleet up.")
    try:
        async with _ending(Child[SupervisorSide](connection_to(found), _NewsIgnored())) as fleet:
            yield fleet.call
    except ChildDied as lost:
        raise FleetUnavailable(str(lost), "`codecfleet up` brings another up.") from None


@asynccontextmanager
async def _ending(child: Child[ServerT]) -> AsyncIterator[Child[ServerT]]:
    try:
        yield child
    finally:
        await child.end()


class _NewsIgnored:
    """Does not care how a fleet's pool is."""

    async def heard(self, beat: object) -> None:
        """Do nothing."""


async def ask_cluster(address: str, question: Request[Desk, ReplyT]) -> ReplyT:
    """Return the answer to one question.

    Raises:
        FleetUnavailable: the cluster cannot be reached, or was lost meanwhile.
        CodecfleetError: the question's own.
    """
    async with desk_of(address) as ask:
        return await ask(question)


def main() -> None:
    """Serve the questions of the process that started this one; the one setting is the cluster's address."""
    end, (address,) = begin()
    run_to_the_end(serve_parent(end, lambda _: Desk(address), me="the process that holds Ray"))
