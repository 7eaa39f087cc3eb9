"""Facts about nodes for which Ray has no public call, and the variables with which a node starts."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from inspect import getclosurevars
from operator import attrgetter
from typing import Any, Final

from ...probes.gpus.visible_device import CUDA_VARIABLE
from .guard import why_unknown

RESOURCES, LABELS = "RAY_OVERRIDE_RESOURCES", "RAY_OVERRIDE_LABELS"
"""Variables with JSON that override options of ``ray start``, for nodes that other programs start."""
ON_HEAD: Final[Mapping[str, float]] = {"node:__internal_head__": 0.001}
"""A resource that only Ray's head has."""
_DRAIN: Final = "_drain_node_before_shutdown"


def free_resources_by_node() -> dict[str, dict[str, float]]:
    """Return the free resources of each node by id; {} if Ray does not report them."""
    return _reported("available_resources_per_node")


def draining_nodes() -> dict[str, int]:
    """Return the nodes that Ray drains, each with the deadline in ms since 1970; {} if Ray does not report them."""
    return _reported("state.get_draining_nodes")


def drain_for(seconds: int) -> None:
    """Let this process, ``ray start``, drain its node for ``seconds`` after SIGTERM.

    An untested version of Ray drains for as long as its environment says. A node that is already draining gets the new
    deadline; the call then returns when the drain is over.
    """
    if not why_unknown({"ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": float}):
        from ray._private import ray_constants

        ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S = float(seconds)
        with suppress(Exception):  # internals may raise any error; the first deadline then stays
            handler: Any = signal.getsignal(signal.SIGTERM)
            its = getclosurevars(handler).nonlocals  # the only way to reach the node object of ``ray start``
            if its["sigterm_received"]:
                getattr(its["self"], _DRAIN)()


def _reported(name: str) -> dict[str, Any]:
    """Return the result of a function of ``ray._private.state``, a dictionary by node id; {} if the call fails."""
    if not why_unknown({f"state.{name}": ()}):
        with suppress(Exception):  # internals may raise any error; the values are then unknown
            return dict(attrgetter(name)(import_module("ray._private.state"))())
    return {}


def cuda_visible_to_node() -> str | None:
    """Return the CUDA_VISIBLE_DEVICES with which Ray was started on this node. Call this in a task without GPUs.

    Such a task inherits the variable, unless Ray is configured to clear it. In that case, Ray remembers the original
    value.
    """
    if not why_unknown({"worker.global_worker.original_visible_accelerator_ids": dict}):
        from ray._private import worker

        with suppress(Exception):  # internals may raise any error; the variable of this process is the next best answer
            entries = worker.global_worker.original_visible_accelerator_ids["GPU"]
            return None if entries is None else ",".join(entries)
    return os.environ.get(CUDA_VARIABLE)


def without_client_port(ray_params: Any, head: bool) -> None:  # noqa: FBT001 - Ray's own arguments
    """Keep Ray Client's server from starting; Ray calls this before a node starts (``START_HOOK``).

    A head would listen on port 10001, and no public option prevents this. Raises SystemExit if this Ray stores the port
    under another name, because it is then safer not to start the node.
    """
    del head
    if not hasattr(ray_params, _CLIENT_PORT):
        raise SystemExit(_OPEN)
    setattr(ray_params, _CLIENT_PORT, None)


START_HOOK: Final[Mapping[str, str]] = {"RAY_START_HOOK": f"{__name__}.{without_client_port.__name__}"}
"""The variable that makes Ray call ``without_client_port``."""
_CLIENT_PORT: Final = "ray_client_server_port"
_OPEN: Final = "codecfleet: this Ray would open port 10001 to Ray Client. Install a version that codecfleet supports."
