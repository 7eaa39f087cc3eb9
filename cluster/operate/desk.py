"""Asks a cluster through a child process, because Ray ends a driver's process when its node dies.

Run as a program, this module is the child process: it answers questions over one connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from ...actors.process.child import Child, ChildDied
from ...actors.process.messages import Request
from ...actors.process.process import start_program
from ...actors.process.program import begin, run_to_the_end, serve_parent
from ...errors import CodecfleetError, FleetUnavailable, UsageError
from ..fleet.default import holds_ray
from ..fleet.messages import ReadStatus, SupervisorSide
from ..fleet.warm import connection_to, find_warm
from ..logs.actions import LogAction
from ..logs.writing import log
from ..ray.embedded import Connection, connect
from ..ray.ray_environment import named_cluster
from ..ray.ray_words import first_line
from ..supervisor.status.history import History
from ..supervisor.status.status import Status
from ..worker_names import StationId
from .supervisor import read_history, read_status

ServerT_co = TypeVar("ServerT_co", covariant=True)
ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")
Arguments = ParamSpec("Arguments")

PROGRAM: Final = __name__
_LOST: Final = "Check `ray status` on the head and on this machine; then try again."


class AskDesk(Protocol[ServerT_co]):
    """Returns the answer to a question, or raises the CodecfleetError with which the question fails."""

    async def __call__(self, question: Request[ServerT_co, ReplyT], /) -> ReplyT: ...


class Desk(SupervisorSide):
    """Answers questions about the cluster at ``address``, in the child process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._held: Connection | None = None

    async def reach(self) -> None:
        """Connect; the connection stays open until ``aclose``."""
        if self._held is None:
            self._held = await connect(self._address)

    async def status(self) -> Status | None:
        await self.reach()
        return await read_status()

    async def history(self, stations: tuple[StationId, ...]) -> History:
        await self.reach()
        return await read_history(stations) or History()

    async def aclose(self) -> None:
        """Release the connection. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()


@dataclass(frozen=True, slots=True)
class Reach(Request[Desk, None]):
    """Check that the cluster admits this user."""

    async def serve(self, server: Desk) -> None:
        await server.reach()


@dataclass(frozen=True, slots=True)
class DeskCall(Request[Desk, ReplyT], Generic[ReplyT]):
    """Call a picklable function that needs the connection, such as a ``partial`` of a module's function."""

    question: Callable[[], Awaitable[ReplyT]]

    async def serve(self, server: Desk) -> ReplyT:
        await server.reach()
        return await self.question()


@dataclass(frozen=True, slots=True)
class Leave(Request[Desk, None]):
    """Disconnect."""

    async def serve(self, server: Desk) -> None:
        await server.aclose()


@asynccontextmanager
async def desk_of(address: str) -> AsyncIterator[AskDesk[Desk]]:
    """Yield a function that asks a cluster; a Ray driver or job asks over its own connection.

    Raises FleetUnavailable: the child process ended, because its node or the control service is gone.
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
        message = f"the process that hosts Ray did not start: {error}"
        raise FleetUnavailable(message, "Check the limits on memory and processes.") from None
    try:
        async with _ending(Child[Desk](process)) as child:
            yield child.call
            await child.call(Leave())
    except ChildDied as lost:
        raise FleetUnavailable(f"the connection to Ray at {address} was lost: {lost}", _LOST) from None


@asynccontextmanager
async def fleet_desk(address: str | None) -> AsyncIterator[AskDesk[SupervisorSide]]:
    """Yield a function that asks a fleet: the named cluster or, if no cluster is named, the warm fleet.

    Raises UsageError: no cluster is named, and no warm fleet with this version of the code runs; FleetUnavailable: the
    fleet cannot be reached.
    """
    if named := named_cluster(address):
        async with desk_of(named) as ask:
            await ask(Reach())
            yield ask
        return
    found, left_alone = await asyncio.to_thread(find_warm)
    if found is None:
        message = f"no cluster is named, and {left_alone or 'no warm fleet runs on this machine'}"
        raise UsageError(message, "Give --address, or set RAY_ADDRESS; `codecfleet up` starts a warm fleet.")
    try:
        async with _ending(Child[SupervisorSide](connection_to(found), _NewsIgnored())) as fleet:
            yield fleet.call
    except ChildDied as lost:
        raise FleetUnavailable(str(lost), "Run `codecfleet up` to start another warm fleet.") from None


@asynccontextmanager
async def _ending(child: Child[ServerT]) -> AsyncIterator[Child[ServerT]]:
    try:
        yield child
    finally:
        await child.end()


class _NewsIgnored:
    async def heard(self, beat: object) -> None:
        """Ignore the state of a fleet's pool."""


Seen: TypeAlias = Status | FleetUnavailable | None
"""A fleet's status, or the error that occurred while it was read; None if there is no supervisor."""


async def fleet_status(address: str | None) -> Status | None:
    """Return a fleet's status; None if no supervisor runs, because no job has used the fleet recently.

    Raises the errors of ``fleet_desk``.
    """
    async with fleet_desk(address) as ask:
        return await ask(ReadStatus())


async def watch_status(address: str | None, show: Callable[[Seen], None], every_s: float) -> None:
    """Until cancelled, show a fleet's status, or why it has none, every ``every_s`` seconds over one connection.

    Raises the errors of ``fleet_desk``, at the beginning or when the fleet is lost.
    """
    async with fleet_desk(address) as ask:
        while True:
            show(await look(ask))
            await asyncio.sleep(every_s)


async def look(ask: AskDesk[SupervisorSide]) -> Seen:
    """Return a fleet's status, or the error if it cannot be read. Raises ChildDied if the connection is lost."""
    try:
        return await ask(ReadStatus())
    except ChildDied:
        raise
    except Exception as error:  # noqa: BLE001 - the next attempt to read the status may succeed
        return as_unavailable(error)


def as_unavailable(error: Exception) -> FleetUnavailable:
    """Return an error as a FleetUnavailable; log it as a defect unless it is a CodecfleetError."""
    if isinstance(error, FleetUnavailable):
        return error
    if isinstance(error, CodecfleetError):
        return FleetUnavailable(error.message, error.next_step)
    message = f"the fleet's status cannot be shown: {first_line(error)}"
    log(LogAction.DEFECT, message, error=error)
    return FleetUnavailable(message, "Please report this defect in codecfleet; the next update may succeed.")


async def ask_cluster(
    address: str,
    question: Callable[Arguments, Awaitable[ReplyT]],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> ReplyT:
    """Return the result of one ``DeskCall``. Raises the errors of ``desk_of`` and of the called function."""
    async with desk_of(address) as ask:
        return await ask(DeskCall(partial(question, *arguments, **named)))


def main() -> None:
    """Answer the questions of the process that started this process; the only setting is the cluster's address."""
    end, (address,) = begin()
    run_to_the_end(serve_parent(end, lambda _: Desk(address), me="the process connected to Ray"))
