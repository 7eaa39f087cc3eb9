"""Calls a cluster's supervisor from outside, for ``codecfleet status``, ``drain`` and similar commands."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ...errors import FleetUnavailable, UsageError
from ..placement.model.demand import Demand
from ..ray.embedded import connect
from ..ray.public.actors import NoSuchActor, named_actor
from ..ray.ray_failures import is_of_ray
from ..supervisor.runner.actor import SUPERVISOR
from ..supervisor.runner.client import refuse_others
from ..supervisor.state.events import Order
from ..supervisor.status.history import History
from ..supervisor.status.status import NodeStatus, Status

T = TypeVar("T")

ANSWER_S = 10.0
_NODES_NAMED = 8
_ID_SHOWN = 8
"""The first digits of a node's id, as ``status`` shows it."""


def require_address(address: str | None) -> str:
    """Return the cluster's address: the argument, or RAY_ADDRESS.

    Raises:
        UsageError: there is neither; a private Ray cannot be inspected from outside.
    """
    found = address or os.environ.get("RAY_ADDRESS", "")
    if not found or found == "local":
        message = "no cluster is named"
        raise UsageError(message, "Give --address, or set RAY_ADDRESS; `auto` is the cluster on this machine.")
    return found


async def ask_supervisor(address: str, question: Callable[[Any], Awaitable[T]]) -> T | None:
    """Connect to a cluster, call ``question`` with its supervisor's handle, and disconnect; None if it has none.

    Raises:
        FleetUnavailable: the cluster or its supervisor does not answer.
        VersionRefused: the supervisor has another version of codecfleet.
    """
    connection = await connect(address)
    try:
        try:
            # Where the head is gone, Ray looks for it for a minute.
            looked_up = asyncio.to_thread(named_actor, SUPERVISOR)
            actor = await in_time(looked_up, "the cluster's head", "Look at its node.")
            answering = _answer(actor, question)
            return await in_time(answering, "the supervisor", "Look at `ray status` and at the node it runs on.")
        except NoSuchActor:
            return None
        except Exception as error:
            if not is_of_ray(error):
                raise
            message = f"the supervisor does not answer: {type(error).__name__}"
            raise FleetUnavailable(message, "Ray restarts it by itself: try again in a few seconds.") from error
    finally:
        await connection.close()


async def in_time(answer: Awaitable[T], who: str, next_step: str, within_s: float = ANSWER_S) -> T:
    """Return an answer that comes in time.

    Raises:
        FleetUnavailable: it does not.
    """
    try:
        return await asyncio.wait_for(answer, within_s)
    except TimeoutError:
        raise FleetUnavailable(f"{who} has not answered for {within_s:g} s", next_step) from None


async def _answer(actor: Any, question: Callable[[Any], Awaitable[T]]) -> T:  # noqa: ANN401 - a handle of Ray's
    await refuse_others(actor)
    return await question(actor)


async def read_status(address: str) -> Status | None:
    """Return a cluster's status; None if it has no supervisor, because no job used it lately."""
    return await ask_supervisor(address, lambda actor: actor.status.remote())


async def read_events(address: str) -> bytes:
    """Return what a cluster's supervisor decided lately; b"" where it keeps no events, or there is none."""
    return await ask_supervisor(address, lambda actor: actor.events.remote()) or b""


async def read_growth(address: str, demand: Demand) -> str:
    """Return which nodes a cluster would ask for such a job, and why; "" where it cannot grow, or has no supervisor."""
    return await ask_supervisor(address, partial(_growth, demand=demand)) or ""


async def _growth(actor: Any, *, demand: Demand) -> str:  # noqa: ANN401 - Ray's handle
    return str(await actor.growth.remote(demand))


async def read_history(address: str, stations: tuple[str, ...]) -> History | None:
    """Return what these stations of a cluster did lately; None if it has no supervisor."""
    return await ask_supervisor(address, partial(_history, stations=stations))


async def _history(actor: Any, *, stations: tuple[str, ...]) -> History:  # noqa: ANN401 - Ray's handle
    found: History = await actor.history.remote(stations)
    return found


async def order_node(address: str, order: Order, node: str) -> None:
    """Cordon, drain or uncordon a node, named by host name, Ray id or id prefix.

    Raises:
        UsageError: no node, or more than one, matches; or the cluster has no supervisor.
    """

    async def ask(actor: Any) -> bool | Status:  # noqa: ANN401 - a handle of Ray's
        known: bool = await actor.ask.remote(order, node)
        if known:
            return True
        status: Status = await actor.status.remote()
        return status

    known = await ask_supervisor(address, ask)
    if known is None:
        message = "no supervisor runs on this cluster, so nothing of ours is on its nodes"
        raise UsageError(message, "To keep all of Ray off a node, use `ray drain-node`.")
    if isinstance(known, Status):
        raise unknown_node(node, order, known)


def unknown_node(wanted: str, order: Order, status: Status) -> UsageError:
    """Return the error of a name that no node, or more than one, has."""
    found = [node for node in status.nodes if node.name == wanted or node.node.startswith(wanted)]
    if not found:
        return UsageError(f"no node is called {wanted}", f"The nodes are {_named(status.nodes)}.")
    step = f"Give one's id: codecfleet {order.value} {found[0].node[:_ID_SHOWN]}."
    return UsageError(f"{len(found)} nodes are called {wanted}: {_named(found)}", step)


def _named(nodes: Sequence[NodeStatus]) -> str:
    """Return the names and ids of the first nodes, and how many more there are."""
    names = [f"{node.name} ({node.node[:_ID_SHOWN]})" for node in nodes[:_NODES_NAMED]]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more: see codecfleet status" if more else "")
