"""Connects this process to Ray quietly, makes Ray reread its settings, and finds the address of a local Ray."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import reduce
from importlib import import_module
from inspect import getattr_static
from typing import Any, Final

from .guard import why_unknown

CONNECT: Final = {"utils.get_entrypoint_name": (), "worker.listen_error_messages": ("worker", "threads_stopped")}
"""The parts of ``ray._private`` that ``quiet_connection`` replaces, with the arguments of each part."""


def quiet_connection() -> AbstractContextManager[None]:
    """Keep Ray from printing the cluster's messages on *stdout*, and from sending this process's command line.

    The messages repeat errors that calls raise anyway. The command line may hold credentials, and names that are not
    UTF-8, which Ray cannot send. An untested version of Ray still prints the messages and sends the command line.
    """
    if why_unknown(CONNECT):
        return nullcontext()
    return replaced(
        {"worker.listen_error_messages": lambda *_: None, "utils.get_entrypoint_name": lambda: "codecfleet"}
    )


@contextmanager
def replaced(replacements: Mapping[str, object]) -> Iterator[None]:
    """Replace attributes of Ray's modules, and restore them for a later ``ray.init`` by the user."""
    places = [_place(name) for name in replacements]
    former = [getattr_static(owner, attribute) for owner, attribute in places]
    for (owner, attribute), value in zip(places, replacements.values(), strict=True):
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for (owner, attribute), value in zip(places, former, strict=True):
            setattr(owner, attribute, value)


def _place(name: str) -> tuple[Any, str]:
    """Return the module or class that holds an attribute below ``ray._private``, and the attribute's name."""
    module, *owners, attribute = name.split(".")
    return reduce(getattr, owners, import_module(f"ray._private.{module}")), attribute


def reread_environment() -> bool:
    """Make an imported Ray reread its settings and token; return False if this Ray cannot do so."""
    shapes = {"Config.initialize": ("config_list",), "AuthenticationTokenLoader.reset_cache": ("self",)}
    if why_unknown({f"_raylet.{name}": shape for name, shape in shapes.items()}, "ray"):
        return False
    compiled: Any = import_module("ray._raylet")  # Ray's type stubs leave these names out
    compiled.Config.initialize("")
    compiled.AuthenticationTokenLoader.instance().reset_cache()
    return True


def greet_cluster(address: str) -> bool:
    """Connect to a cluster's control service; return False if this Ray has no client for it.

    Call this in a child process, because Ray prints its attempts and raises errors of many kinds.
    """
    if why_unknown({"_raylet.GcsClient": type}, "ray"):
        return False
    compiled: Any = import_module("ray._raylet")
    return bool(compiled.GcsClient(address=address))


def cluster_on_this_machine() -> str | None:
    """Return the address that "auto" means: the address of the Ray that was started last, even if that Ray has ended.

    Return "" if no Ray was started, and None if this Ray cannot tell.
    """
    if why_unknown({"utils.read_ray_address": (), "services.canonicalize_bootstrap_address": ("addr",)}):
        return None
    from ray._private import services, utils

    with suppress(ConnectionError):
        return utils.read_ray_address() or services.canonicalize_bootstrap_address("auto")
    return ""
