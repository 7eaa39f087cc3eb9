"""Starts, finds, calls and ends Ray's actors. All actor names are in codecfleet's namespace."""

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from ..private_ray import NAMESPACE

Actor: TypeAlias = Any  #: Ray's handle of an actor, whose methods are created at run time, without types


def join_from_child(address: str) -> None:
    """Connect a child process of a Ray worker to the cluster, unless it is connected."""
    import ray

    if not ray.is_initialized():
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        ray.init(address=address, namespace=NAMESPACE, ignore_reinit_error=True, **options)


def make_actor(kind: type, options: Mapping[str, Any], *arguments: object, **named: object) -> Actor:
    """Start an actor of this class. If the start fails, the first call raises the error."""
    import ray

    return ray.remote(**options)(kind).remote(*arguments, **named)


class NoSuchActor(ValueError):
    """No actor of this name is alive."""


def named_actor(name: str) -> Actor:
    """Return the live actor with this name. Raises NoSuchActor if there is none."""
    import ray

    try:
        return ray.get_actor(name, NAMESPACE)
    except ValueError:
        raise NoSuchActor(name) from None


def actor_names() -> list[str]:
    """Return the names of all live actors in codecfleet's namespace."""
    from ray.util import list_named_actors

    return [entry["name"] for entry in list_named_actors(all_namespaces=True) if entry["namespace"] == NAMESPACE]


def kill_actor(actor: Actor) -> None:
    """End the process of an actor, which Ray does not start again."""
    import ray

    ray.kill(actor)


def kill_this_actor() -> None:
    """End the actor that calls this function."""
    import ray

    me: Any = ray.get_runtime_context().current_actor
    ray.kill(me)


def answer_of(reference: Any, within_s: float | None = None) -> Any:
    """Return the result of a call; errors of Ray and of the call are raised unchanged."""
    import ray

    return ray.get(reference, timeout=within_s)


def put(content: bytes) -> Any:
    """Store bytes in Ray's object store; return a reference, which calls accept as an argument."""
    import ray

    return ray.put(content)
