"""The lean start of a private Ray: attributes of Ray are replaced while it starts, and put back.

Without it a private Ray starts by public switches alone, which takes longer.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from .connection import CONNECT, quiet_connection, replaced
from .guard import why_unknown

if TYPE_CHECKING:
    import subprocess

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
"""What the lean start uses of ``ray._private``: arguments by which it is called, or the type of a value."""


def why_no_lean_start() -> str:
    """Say why the installed Ray is started by public calls alone; "" if the lean start supports it."""
    return why_unknown(_LEAN)


class ProcessWatch(Protocol):
    """Sees the processes that a lean start starts; ``check`` raises when they will never be ready."""

    def note(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Take notice of a process that Ray started."""

    def check(self) -> None:
        """Return while the start may succeed."""


def init_lean(watch: ProcessWatch, options: Mapping[str, Any], folder: Path) -> None:
    """Start Ray with its files in ``folder``, which is shorter than Ray's own path below RAY_TMPDIR."""
    import ray

    with lean_start(watch):
        ray.init(**options, _temp_dir=str(folder))


@contextmanager
def lean_start(watch: ProcessWatch) -> Iterator[None]:
    """Start Ray inside without what only clusters need; call it only if ``why_no_lean_start`` returns ""."""
    from ray._private import parameter, services

    node: Any = import_module("ray._private.node")
    no_helpers: Any = {"no_monitor": True, "include_log_monitor": False}
    replacements = {
        # No autoscaler and no log forwarder: two fewer Pythons, and no wait for their end.
        "parameter.RayParams": partial(parameter.RayParams, **no_helpers),
        # No dashboard: include_dashboard=False only starts an empty one, and waits a second for it.
        "services.start_api_server": lambda *_, **__: (None, None),
        # No dashboard agent but the stub that Ray's node waits for: nothing samples, serves or scrapes.
        "utils.get_dashboard_dependency_error": lambda: ImportError("the embedded Ray has no dashboard"),
        "services.start_ray_process": partial(_start_watched, services.start_ray_process, watch),
        "node.wait_for_persisted_port": partial(_wait_for_port, node.wait_for_persisted_port, watch),
        # The node registers 0.8 s after its start, but Ray looks only once a second.
        "services.get_node": partial(_get_node_soon, services.get_node, watch),
        # The same as the environment variable, for a Ray that was imported before we could set it.
        "ray_constants.ENABLE_RAY_CLUSTER": False,
        # Under `uv run` Ray would pack the working directory and start its workers through uv.
        "ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV": False,
    }
    with replaced(replacements), quiet_connection():
        yield


def _start_watched(
    start: Callable[..., Any], watch: ProcessWatch, command: object, name: str, *args: Any, **rest: Any
) -> Any:
    started = start(command, name, *args, **rest)
    watch.note(name, started.process)
    return started


def _wait_for_port(
    wait: Callable[..., int], watch: ProcessWatch, directory: str, node_id: str, port_name: str, **_: object
) -> int:
    """Wait for a process to publish its port, as long as it may."""
    while True:
        try:
            return wait(directory, node_id, port_name, timeout_ms=_PORT_WAIT_MS, poll_interval_ms=_PORT_LOOK_MS)
        except RuntimeError:  # not yet
            watch.check()


def _get_node_soon(
    get_node: Callable[[str, str], object], watch: ProcessWatch, gcs_address: str, node_id: str
) -> object:
    from ray._private import services, state

    view = state.GlobalState()
    view._initialize_global_state(services._get_gcs_client_options(gcs_address))
    while all(node["NodeID"] != node_id for node in view.node_table()):
        watch.check()
        time.sleep(_LOOK_S)
    return get_node(gcs_address, node_id)
