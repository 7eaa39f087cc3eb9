"""Ray's knowledge of its nodes for which it has no public call, and the variables with which a node starts."""

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

from ...probes.gpus.visible_device import CUDA_VARIABLE
from .guard import why_unknown

RESOURCES, LABELS = "RAY_OVERRIDE_RESOURCES", "RAY_OVERRIDE_LABELS"
"""Variables of ``ray start`` that win over its options, as JSON: for a node that others start."""
ON_HEAD: Final[Mapping[str, float]] = {"node:__internal_head__": 0.001}
"""A resource that only Ray's head has."""


def free_resources_by_node() -> dict[str, dict[str, float]]:
    """Return free resources by node id; {} if Ray does not report them."""
    return _reported("available_resources_per_node")


def draining_nodes() -> dict[str, int]:
    """Return the nodes that Ray drains: {id: end of the notice, in ms of UTC}; {} if Ray does not report them."""
    return _reported("state.get_draining_nodes")


def _reported(name: str) -> dict[str, Any]:
    """Return the report of a call of ``ray._private.state`` by node id; {} if Ray does not report."""
    if not why_unknown({f"state.{name}": ()}):
        with suppress(Exception):  # internals promise nothing; unknown values are left out
            return dict(attrgetter(name)(import_module("ray._private.state"))())
    return {}


def cuda_visible_to_node() -> str | None:
    """Return the CUDA_VISIBLE_DEVICES with which Ray was started on this node; call it in a task without GPUs.

    Such a task inherits it, unless Ray was configured to blank it there; Ray remembers the original.
    """
    if not why_unknown({"worker.global_worker.original_visible_accelerator_ids": dict}):
        from ray._private import worker

        with suppress(Exception):  # internals promise nothing; unknown values are left out
            entries = worker.global_worker.original_visible_accelerator_ids["GPU"]
            return None if entries is None else ",".join(entries)
    return os.environ.get(CUDA_VARIABLE)


def without_client_port(ray_params: Any, head: bool) -> None:  # noqa: FBT001 - Ray's own arguments
    """Keep Ray Client's server from starting; Ray calls this before a node starts (``START_HOOK``).

    A head would listen for it on port 10001, and there is no public switch against it. Raises SystemExit: this Ray has
    the port elsewhere; no node starts rather than one that is open.
    """
    del head
    if not hasattr(ray_params, _CLIENT_PORT):
        raise SystemExit(_OPEN)
    setattr(ray_params, _CLIENT_PORT, None)


START_HOOK: Final[Mapping[str, str]] = {"RAY_START_HOOK": f"{__name__}.{without_client_port.__name__}"}
"""The variable by which Ray calls it."""
_CLIENT_PORT: Final = "ray_client_server_port"
_OPEN: Final = "codecfleet: this Ray would listen for Ray Client on port 10001. Install one that codecfleet supports."
