"""Starts a private Ray without the parts that only clusters need, by temporarily replacing attributes of Ray's modules.

If the installed Ray does not support this lean start, Ray starts through public options, which takes longer.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from .connection import CONNECT, quiet_connection, replaced
from .guard import why_unknown

_LOOK_S, _PORT_LOOK_MS, _PORT_WAIT_MS = 0.02, 20, 200
_LEAN: Final[Mapping[str, tuple[str, ...] | type]] = {
    **CONNECT,
    "node.wait_for_persisted_port": ("dir", "node_id", "port_name", "timeout_ms", "poll_interval_ms"),
    "parameter.RayParams": ("no_monitor", "include_log_monitor"),
    "ray_constants.ENABLE_RAY_CLUSTER": bool,
    "ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV": bool,
    "services._get_gcs_client_options": ("gcs_server_address",),
    "services.get_node": ("gcs_address", "node_id"),
    "services.start_ray_process": ("command", "process_type", "fate_share"),
    "services.start_api_server": (
        *("include_dashboard", "raise_on_failure", "host", "gcs_address", "cluster_id_hex", "node_ip_address"),
        *("temp_dir", "logdir", "session_dir"),
    ),
    "state.GlobalState._initialize_global_state": ("self", "gcs_options"),
    "state.GlobalState.node_table": ("self",),
    "utils.get_dashboard_dependency_error": (),
    "worker.init": ("address", "_temp_dir"),
}
"""The parts of ``ray._private`` that the lean start uses: the arguments of functions, and the types of values."""


def why_no_lean_start() -> str:
    """Return why the installed Ray must start through public calls only; "" if Ray supports the lean start."""
    return why_unknown(_LEAN)


def init_lean(
    options: Mapping[str, Any], folder: Path, note: Callable[[str, Any], object], check: Callable[[], object]
) -> None:
    """Start Ray with its files directly in ``folder``; with RAY_TMPDIR, Ray would put them into one more folder.

    ``note`` is called with the name and the ``Popen`` of each process; ``check`` raises an error if the start has
    failed.
    """
    import ray

    with lean_start(note, check):
        ray.init(**options, _temp_dir=str(folder))


@contextmanager
def lean_start(note: Callable[[str, Any], object], check: Callable[[], object]) -> Iterator[None]:
    """Let ``ray.init`` inside the block skip the parts that only clusters need. Requires a supported lean start."""
    from ray._private import parameter, services

    node: Any = import_module("ray._private.node")
    no_helpers: Any = {"no_monitor": True, "include_log_monitor": False}
    replacements = {
        # Start no autoscaler and no log forwarder, which saves two Python processes and the wait for their end.
        "parameter.RayParams": partial(parameter.RayParams, **no_helpers),
        # Start no dashboard; with include_dashboard=False, Ray would start an empty dashboard and wait a second for it.
        "services.start_api_server": lambda *_, **__: (None, None),
        # Ray's node waits for the dashboard agent, so a stub is started that collects and serves nothing.
        "utils.get_dashboard_dependency_error": lambda: ImportError("the private Ray has no dashboard"),
        "services.start_ray_process": partial(_start_watched, services.start_ray_process, note),
        "node.wait_for_persisted_port": partial(_wait_for_port, node.wait_for_persisted_port, check),
        # The node registers 0.8 s after its start, but Ray would check only once a second.
        "services.get_node": partial(_get_node_soon, services.get_node, check),
        # This replaces the environment variable, which comes too late if Ray is already imported.
        "ray_constants.ENABLE_RAY_CLUSTER": False,
        # Under `uv run`, Ray would pack the working directory and start its workers through uv.
        "ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV": False,
    }
    with replaced(replacements), quiet_connection():
        yield


def _start_watched(
    start: Callable[..., Any], note: Callable[[str, Any], object], command: object, name: str, *args: Any, **rest: Any
) -> Any:
    started = start(command, name, *args, **rest)
    note(name, started.process)
    return started


def _wait_for_port(
    wait: Callable[..., int], check: Callable[[], object], directory: str, node_id: str, port_name: str, **_: object
) -> int:
    while True:
        try:
            return wait(directory, node_id, port_name, timeout_ms=_PORT_WAIT_MS, poll_interval_ms=_PORT_LOOK_MS)
        except RuntimeError:  # the port is not known yet
            check()


def _get_node_soon(
    get_node: Callable[[str, str], object], check: Callable[[], object], gcs_address: str, node_id: str
) -> object:
    from ray._private import services, state

    view = state.GlobalState()
    view._initialize_global_state(services._get_gcs_client_options(gcs_address))
    while all(node["NodeID"] != node_id for node in view.node_table()):
        check()
        time.sleep(_LOOK_S)
    return get_node(gcs_address, node_id)
