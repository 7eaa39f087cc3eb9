"""Ray's actors: made, found by name, asked, ended. All names are of our namespace."""

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from ..private_ray import NAMESPACE

Actor: TypeAlias = Any  #: Ray's handle of an actor: its methods are made at run time and carry no types


def join_from_child(address: str) -> None:
    """Join a cluster from a child process of a Ray worker, which is not connected itself."""
    import ray

    if not ray.is_initialized():
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        ray.init(address=address, namespace=NAMESPACE, ignore_reinit_error=True, **options)


def make_actor(kind: type, options: Mapping[str, Any], *arguments: object, **named: object) -> Actor:
    """Start an actor of this class; its first call raises what went wrong."""
    import ray

    return ray.remote(**options)(kind).remote(*arguments, **named)


class NoSuchActor(ValueError):
    """No actor of this name is alive."""


def named_actor(name: str) -> Actor:
    """Return an actor of codecfleet's namespace; raises NoSuchActor where none of that name is alive."""
    import ray

    try:
        return ray.get_actor(name, NAMESPACE)
    except ValueError:
        raise NoSuchActor(name) from None


def actor_names() -> list[str]:
    """Return the names of all live actors of our namespace."""
    from ray.util import list_named_actors

    return [entry["name"] for entry in list_named_actors(all_namespaces=True) if entry["namespace"] == NAMESPACE]


def kill_actor(actor: Actor) -> None:
    """End an actor's process; Ray does not start it again."""
    import ray

    ray.kill(actor)


def kill_this_actor() -> None:
    """End the actor that calls this."""
    import ray

    me: Any = ray.get_runtime_context().current_actor
    ray.kill(me)


def answer_of(reference: Any, within_s: float | None = None) -> Any:
    """Wait for the answer of a call; errors of Ray, and of the call, are raised unchanged."""
    import ray

    return ray.get(reference, timeout=within_s)


def put(content: bytes) -> Any:
    """Store bytes where every process of the cluster can fetch them; return a reference for calls."""
    import ray

    return ray.put(content)
