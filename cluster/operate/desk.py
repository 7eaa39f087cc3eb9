"""Questions to a cluster, asked from a process of their own: one that holds Ray's driver dies with its node.

As a program it serves them, over one connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from ...errors import FleetUnavailable, UsageError
from ..fleet.client_name import ClientName
from ..fleet.host.running import serve
from ..fleet.hosted_pool import holds_ray
from ..fleet.leases.connected_pool import ConnectedPool
from ..fleet.link import HostLink, HostLost
from ..fleet.process import start_host
from ..fleet.warm import connection_to, find_warm
from ..process.process import StartedProcess
from ..process.program import begin
from ..ray.embedded import Connection, connect
from ..ray.ray_environment import named_cluster
from .probe import list_cluster, probe_cluster, survey_cluster
from .supervisor import order_node, read_growth, read_history, read_status

Ask: TypeAlias = Callable[..., Awaitable[Any]]
"""Takes the name of a question and its arguments but the address."""

QUESTIONS: Final[Mapping[str, Callable[..., Awaitable[object]]]] = {
    "status": read_status,
    "history": read_history,
    "order": order_node,
    "probe": probe_cluster,
    "nodes": list_cluster,
    "survey": survey_cluster,
    "growth": read_growth,
}
REACH: Final = "reach"
"""The question whether the cluster lets us in."""
_LOST: Final = "Look at `ray status` on its head node, and at this machine's Ray; then try again."


class Desk(ConnectedPool):
    """Answers questions about the cluster at ``address``; it never starts as a pool."""

    def __init__(self, address: str, slots: int | None = None, *, dlas: int = 0, name: object = None) -> None:
        del name
        super().__init__(address, slots, dlas=dlas)
        self._at = address
        self._held: Connection | None = None

    async def answer(self, question: str, *arguments: object) -> object:
        """Answer one; the connection stays open until ``aclose``.

        Raises:
            CodecfleetError: the question's own.
        """
        if self._held is None:
            self._held = await connect(self._at)
        return None if question == REACH else await QUESTIONS[question](self._at, *arguments)

    async def aclose(self) -> None:
        """Release the connection. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()
        await super().aclose()


def _start(address: str) -> StartedProcess:
    return start_host(address, None, 0, ClientName(), program=__name__)


@asynccontextmanager
async def desk_of(address: str) -> AsyncIterator[Ask]:
    """Have questions to a cluster answered; in a Ray driver or job by this process itself.

    Raises:
        FleetUnavailable: the process that holds Ray's driver ended, since its node or control service is gone.
    """
    if holds_ray():
        desk = Desk(address)
        try:
            yield desk.answer
        finally:
            await desk.aclose()
        return
    try:
        process = _start(address)
    except OSError as error:
        message = f"the process that is to hold Ray did not start: {error}"
        raise FleetUnavailable(message, "Check the limits on memory and processes.") from None
    try:
        async with _linked(process) as link:
            yield partial(link.ask, "answer")
    except HostLost as lost:
        raise FleetUnavailable(f"the connection to Ray at {address} was lost: {lost}", _LOST) from None


@asynccontextmanager
async def fleet_desk(address: str | None) -> AsyncIterator[Ask]:
    """Have questions about a fleet answered: the named cluster's, else those that a pool answers by the warm fleet's.

    Raises:
        UsageError: no cluster is named, and no warm fleet of this code is up.
        FleetUnavailable: as for ``desk_of``; or the warm fleet ended.
    """
    if named := named_cluster(address):
        async with desk_of(named) as ask:
            await ask(REACH)
            yield ask
        return
    found, left_alone = await asyncio.to_thread(find_warm)
    if found is None:
        message = f"no cluster is named, and {left_alone or 'no warm fleet is up on this machine'}"
        raise UsageError(message, "Give --address, or set RAY_ADDRESS; `codecfleet up` brings a warm fleet up.")
    try:
        async with _linked(connection_to(found)) as link:
            yield link.ask
    except HostLost as lost:
        raise FleetUnavailable(str(lost), "`codecfleet up` brings another up.") from None


@asynccontextmanager
async def _linked(process: StartedProcess) -> AsyncIterator[HostLink]:
    link = HostLink(process, lambda *_: None)
    is_done = False
    try:
        yield link
        is_done = True
    finally:
        await link.close(at_once=not is_done)


async def ask_cluster(address: str, question: str, *arguments: object) -> Any:  # noqa: ANN401 - each question's own
    """Return the answer to one question.

    Raises:
        FleetUnavailable: the cluster cannot be reached, or was lost meanwhile.
        CodecfleetError: the question's own.
    """
    async with desk_of(address) as ask:
        return await ask(question, *arguments)


def main() -> None:
    """Serve the questions of the process that started this one."""
    serve(Desk, *begin())
