"""Calls the connected cluster's supervisor for ``codecfleet status``, ``drain`` and similar commands."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...errors import FleetUnavailable, UsageError
from ..placement.model.demand import Demand
from ..ray.public.actors import Actor, NoSuchActor, named_actor
from ..ray.ray_environment import named_cluster
from ..ray.ray_failures import is_of_ray
from ..supervisor.runner.actor import SUPERVISOR, ActorClient, refuse_others
from ..supervisor.state.events import Order
from ..supervisor.state.settings import policy_from, settings_from
from ..supervisor.status.history import History
from ..supervisor.status.status import NodeStatus, Status
from ..worker_names import StationId

T = TypeVar("T")

ANSWER_S = 10.0
START_S = 60.0
_NODES_NAMED = 8
_ID_SHOWN = 8  #: How many digits of a node's id ``status`` shows


def require_address(address: str | None) -> str:
    """Return the argument if it is set, otherwise RAY_ADDRESS. Raises UsageError if neither names a cluster."""
    if found := named_cluster(address):
        return found
    message = "no cluster is named"
    raise UsageError(message, "Give --address, or set RAY_ADDRESS; `auto` is the cluster on this machine.")


async def ask_supervisor(question: Callable[[Actor], Awaitable[T]]) -> T | None:
    """Call ``question`` with the handle of the connected cluster's supervisor; return None if there is no supervisor.

    Raises FleetUnavailable: the supervisor does not answer; VersionRefused: the supervisor has another version of
    codecfleet.
    """
    try:
        # If the head is gone, Ray would try for a minute to reach it.
        looked_up = asyncio.to_thread(named_actor, SUPERVISOR)
        actor = await in_time(looked_up, "the cluster's head", "Check its node.")
        answering = _answer(actor, question)
        return await in_time(answering, "the supervisor", "Check `ray status` and the supervisor's node.")
    except NoSuchActor:
        return None
    except Exception as error:  # Ray's errors have many types; other errors are raised again
        if not is_of_ray(error):
            raise
        message = f"the supervisor does not answer: {type(error).__name__}"
        raise FleetUnavailable(message, "Try again in a few seconds: Ray restarts the supervisor by itself.") from error


async def in_time(answer: Awaitable[T], who: str, next_step: str, within_s: float = ANSWER_S) -> T:
    """Return the answer to a call. Raises FleetUnavailable if the answer does not arrive in time."""
    try:
        return await asyncio.wait_for(answer, within_s)
    except TimeoutError:
        raise FleetUnavailable(f"{who} has not answered for {within_s:g} s", next_step) from None


async def _answer(actor: Actor, question: Callable[[Actor], Awaitable[T]]) -> T:
    await refuse_others(actor)
    return await question(actor)


async def read_status() -> Status | None:
    """Return a cluster's status; None if there is no supervisor, because no job has used the cluster recently."""
    return await ask_supervisor(lambda actor: actor.status.remote())


async def read_events() -> bytes:
    """Return the last events of a cluster's supervisor; b"" if there is no supervisor, or it records no events."""
    return await ask_supervisor(lambda actor: actor.events.remote()) or b""


async def read_growth(demand: Demand) -> str:
    """Return which nodes a cluster would request for a job, and why; "" without autoscaling or without a supervisor."""
    return str(await ask_supervisor(lambda actor: actor.growth.remote(demand)) or "")


async def read_history(stations: tuple[StationId, ...]) -> History | None:
    """Return the recent history of stations of a cluster; None if the cluster has no supervisor."""
    return await ask_supervisor(lambda actor: actor.history.remote(stations))


async def order_node(order: Order, node: str) -> None:
    """Cordon, drain or uncordon a node, given by host name or the beginning of its Ray id.

    If there is no supervisor, start one, because a driver of a queue may run on the node. Raises UsageError: the name
    fits no node, or several.
    """

    async def ask(actor: Actor) -> Status | str:
        status: Status = await actor.status.remote()
        return "" if await actor.ask.remote(order, node) else status

    known = await ask_supervisor(ask)
    if known is None:
        starting = ActorClient(settings_from(os.environ), policy_from(os.environ)).open()
        await in_time(starting, "the new supervisor", "Check `ray status`.", START_S)
        known = await ask_supervisor(ask)
    if isinstance(known, Status):
        raise unknown_node(node, order, known)


def unknown_node(wanted: str, order: Order, status: Status) -> UsageError:
    """Return the error for a name that fits no node, or several."""
    found = [node for node in status.nodes if node.name == wanted or node.node.startswith(wanted)]
    if not found:
        return UsageError(f"no node is called {wanted}", f"The nodes are {_named(status.nodes)}.")
    step = f"Give the id of one node: `codecfleet {order.value} {found[0].node[:_ID_SHOWN]}`."
    return UsageError(f"{len(found)} nodes are called {wanted}: {_named(found)}", step)


def _named(nodes: Sequence[NodeStatus]) -> str:
    names = [f"{node.name} ({node.node[:_ID_SHOWN]})" for node in nodes[:_NODES_NAMED]]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more: see `codecfleet status`" if more else "")
