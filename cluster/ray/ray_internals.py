"""All uses of Ray beyond its public interface; no other module imports Ray's private ones.

Ray may change any of it in any release, so every use is guarded. Attributes are replaced (for a private Ray's lean
start) only in a tested minor version, and only after all of them have the expected shape. Functions that are called
must accept the call. Each use has a public substitute, or states what is lost without it.
"""

import inspect
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from ..probes.gpus.visible_device import CUDA_VARIABLE

if TYPE_CHECKING:
    import subprocess

TESTED_MINORS = ((2, 60),)
"""Versions of Ray whose attributes may be replaced: test_embedded.py passes on each."""
public_only = False
"""For tests: use no internals, as with a Ray that has none of them."""

_LOOK_S, _PORT_LOOK_MS, _PORT_WAIT_MS = 0.02, 20, 200

_CONNECT: Final = {"utils.get_entrypoint_name": (), "worker.listen_error_messages": ("worker", "threads_stopped")}
_LEAN: Final[Mapping[str, tuple[str, ...] | type]] = {
    **_CONNECT,
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
}
"""What the lean start uses of ``ray._private``: arguments by which it is called, or the type of a value."""
_KEEPER: Final[Mapping[str, Any]] = {"name": "codecfleet-keeper", "namespace": "codecfleet"}


def _why_unknown(shapes: Mapping[str, tuple[str, ...] | type], package: str = "ray._private") -> str:
    """Say which of Ray's attributes does not have the expected shape; "" if all have."""
    if public_only:
        return "its internals are switched off"
    for name, shape in shapes.items():
        module, _, attribute = name.partition(".")
        try:
            found = attrgetter(attribute)(import_module(f"{package}.{module}"))
            if isinstance(shape, type):
                fits = isinstance(found, shape)
            else:
                inspect.signature(found).bind(**dict.fromkeys(shape))
                fits = True
        except (ImportError, AttributeError, TypeError, ValueError):
            fits = False
        if not fits:
            return f"its {package}.{name} differs from the tested one"
    return ""


def tested_versions() -> str:
    """Return the versions of Ray that the lean start supports, as text."""
    return ", ".join(f"{major}.{minor}" for major, minor in TESTED_MINORS)


def _is_tested(version: str) -> bool:
    """Return whether attributes of this version of Ray may be replaced."""
    return version.split(".")[:2] in [[str(major), str(minor)] for major, minor in TESTED_MINORS]


def why_no_lean_start() -> str:
    """Say why the installed Ray is started by public calls alone; "" if the lean start supports it."""
    import ray

    if not _is_tested(ray.__version__):
        return f"Ray {ray.__version__} was never tested with it"
    return _why_unknown(_LEAN)


class ProcessWatch(Protocol):
    """What is told of the processes that a lean start starts; ``check`` raises when they will never be ready."""

    def note(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Take notice of a process that Ray started."""

    def check(self) -> None:
        """Return while the start may succeed."""


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
    with _replaced(replacements), quiet_connection():
        yield


def quiet_connection() -> AbstractContextManager[None]:
    """Connect without Ray's relay of cluster messages to *stdout*, and without telling the cluster our command line.

    We raise the messages as errors; the command may hold credentials, and names that are not UTF-8, which Ray cannot
    send. An untested Ray does both.
    """
    import ray

    if not _is_tested(ray.__version__) or _why_unknown(_CONNECT):
        return nullcontext()
    return _replaced(
        {"worker.listen_error_messages": lambda *_: None, "utils.get_entrypoint_name": lambda: "codecfleet"}
    )


@contextmanager
def _replaced(replacements: Mapping[str, object]) -> Iterator[None]:
    """Replace attributes of Ray's modules, and restore them for a later ``ray.init`` of the user's."""
    places = [(import_module(f"ray._private.{name.split('.')[0]}"), name.split(".")[1]) for name in replacements]
    former = [getattr(module, attribute) for module, attribute in places]
    for (module, attribute), value in zip(places, replacements.values(), strict=True):
        setattr(module, attribute, value)
    try:
        yield
    finally:
        for (module, attribute), value in zip(places, former, strict=True):
            setattr(module, attribute, value)


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


def reread_environment() -> bool:
    """Make an imported Ray forget the settings and token that it read; False if this Ray cannot."""
    shapes = {"Config.initialize": ("config_list",), "AuthenticationTokenLoader.reset_cache": ("self",)}
    if _why_unknown({f"_raylet.{name}": shape for name, shape in shapes.items()}, "ray"):
        return False
    from ray import _raylet

    # The stubs of Ray's compiled module leave both out.
    _raylet.Config.initialize("")  # type: ignore[attr-defined]
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]
    return True


def greet_cluster(address: str) -> bool:
    """Connect to a cluster's control service; False if this Ray has no such client.

    For a child process: Ray prints its tries, and raises errors of many kinds.
    """
    from ray import _raylet

    client = getattr(_raylet, "GcsClient", None)
    return client is not None and bool(client(address=address))


def cluster_on_this_machine() -> str | None:
    """Return the address for which "auto" stands, "" if no Ray runs here; None if this Ray cannot tell.

    That is the Ray that was started last, if it is known, whether it still runs or not.
    """
    if _why_unknown({"utils.read_ray_address": (), "services.canonicalize_bootstrap_address": ("addr",)}):
        return None
    from ray._private import services, utils

    with suppress(ConnectionError):
        return utils.read_ray_address() or services.canonicalize_bootstrap_address("auto")
    return ""


def keep_in_cluster(key: str, value: bytes) -> None:
    """Store a value for the cluster's life in Ray's key-value store; or else in an actor, which ends with its node."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        put(key, value, overwrite=True)
    else:
        _got(_keeper().put.remote(key, value))


def claim_in_cluster(key: str) -> bool:
    """Store an empty value under a key as ``keep_in_cluster`` does, unless there is one; return whether it did."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        return not put(key, b"", overwrite=False)
    return bool(_got(_keeper().claim.remote(key)))


def keys_in_cluster(prefix: str) -> list[str]:
    """Return the keys that begin with ``prefix`` of all that was kept or claimed."""
    if (listed := _store_call("_internal_kv_list", "prefix")) is not None:
        return [key.decode() for key in listed(prefix)]
    return list(_got(_keeper().keys.remote(prefix)))


def kept_in_cluster(key: str) -> bytes | None:
    """Return what ``keep_in_cluster`` stored last; None if nothing."""
    found: bytes | None = None
    if (get := _store_call("_internal_kv_get", "key")) is not None:
        found = get(key)
    else:
        with suppress(ValueError):  # nothing was ever kept
            found = _got(_keeper(make=False).get.remote(key))
    return found


def _store_call(name: str, *arguments: str) -> Callable[..., Any] | None:
    """Return a call of Ray's key-value store; None where it is not as expected."""
    if _why_unknown({f"internal_kv.{name}": arguments}, "ray.experimental"):
        return None
    call: Callable[..., Any] = getattr(import_module("ray.experimental.internal_kv"), name)
    return call


def _keeper(*, make: bool = True) -> Any:
    """Return the actor that keeps values where the key-value store is unknown; ``make`` it if there is none."""
    import ray

    if not make:
        return ray.get_actor(**_KEEPER)
    return ray.remote(_Keeper).options(lifetime="detached", get_if_exists=True, num_cpus=0, **_KEEPER).remote()


def _got(answer: Any) -> Any:
    import ray

    return ray.get(answer)


class _Keeper:
    """A dictionary, as an actor."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def claim(self, key: str) -> bool:
        is_free = key not in self._values
        self._values.setdefault(key, b"")
        return is_free

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._values if key.startswith(prefix)]


def free_resources_by_node() -> dict[str, dict[str, float]]:
    """Return free resources by node id; empty where Ray does not report them."""
    return _reported("available_resources_per_node")


def draining_nodes() -> dict[str, int]:
    """Return the nodes that Ray drains: {id: end of the notice, in ms of UTC}; empty where Ray does not report them."""
    return _reported("state.get_draining_nodes")


def _reported(name: str) -> dict[str, Any]:
    """Return what a call of ``ray._private.state`` reports by node id; empty where Ray does not."""
    if not _why_unknown({f"state.{name}": ()}):
        with suppress(Exception):  # internals promise nothing; what is not known is left out
            return dict(attrgetter(name)(import_module("ray._private.state"))())
    return {}


Asked: TypeAlias = Counter[tuple[frozenset[tuple[str, float]], frozenset[tuple[str, str]]]]
"""What Ray's autoscaler is to have room for: how many bundles of these resources, on nodes with these labels."""


class AutoscalerReport(NamedTuple):
    """What Ray says of its autoscaler.

    ``asked`` is what it was asked for last; ``is_refused`` says whether it found that it cannot give that. ``looks``
    grows with each of its looks at the cluster.
    """

    asked: Asked
    is_refused: bool
    looks: int


_WORDS: Final = "ray.core.generated.autoscaler_pb2"
"""What the service's messages are made of."""
_AUTOSCALER_S: Final = 5


def autoscaler_report() -> AutoscalerReport | None:
    """Return what Ray says of its second autoscaler; None where this Ray cannot be asked: only its deeds tell then."""
    client = _control_service("get_cluster_status", "timeout_s")
    if client is None:
        return None
    words: Any = import_module(_WORDS)
    status = words.GetClusterStatusReply.FromString(client.get_cluster_status(timeout_s=_AUTOSCALER_S))
    asked: Asked = Counter()
    for constraint in status.cluster_resource_state.cluster_resource_constraints:
        for each in constraint.resource_requests:
            selectors = [one for each_of in each.request.label_selectors for one in each_of.label_constraints]
            labels = frozenset((one.label_key, value) for one in selectors for value in one.label_values)
            asked[frozenset(each.request.resources_bundle.items()), labels] += each.count
    found = status.autoscaling_state
    is_refused = bool(found.infeasible_cluster_resource_constraints)
    return AutoscalerReport(asked, is_refused, found.last_seen_cluster_resource_state_version)


def end_idle_node(node: str, reason: str) -> bool:
    """Have Ray end a node that runs nothing; False if it runs something.

    A Ray that cannot be asked so is left to end it when its own time is over.
    """
    client = _control_service("drain_node", "node_id", "reason", "reason_message", "deadline_timestamp_ms")
    if client is None:
        return False
    words: Any = import_module(_WORDS)
    idle = words.DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")
    return bool(client.drain_node(node, idle, reason, 0)[0])


def _control_service(call: str, *arguments: str) -> Any:
    """Return this process's client of Ray's control service; None where that call of it is not as expected."""
    needed: dict[str, Mapping[str, tuple[str, ...] | type]] = {
        "ray": {f"_raylet.InnerGcsClient.{call}": ("self", *arguments)},
        "ray.core.generated": {"autoscaler_pb2.GetClusterStatusReply": type, "autoscaler_pb2.DrainNodeReason": object},
        "ray.experimental": {"internal_kv.internal_kv_get_gcs_client": ()},
    }
    if any(_why_unknown(shapes, package) for package, shapes in needed.items()):
        return None
    from ray.experimental import internal_kv

    return internal_kv.internal_kv_get_gcs_client()


def cuda_visible_to_node() -> str | None:
    """Return CUDA_VISIBLE_DEVICES as Ray was started with it on this node; call it in a task without GPUs.

    Such a task inherits it, unless Ray was configured to blank it there; Ray remembers the original.
    """
    if not _why_unknown({"worker.global_worker.original_visible_accelerator_ids": dict}):
        from ray._private import worker

        with suppress(Exception):  # internals promise nothing; what is not known is left out
            entries = worker.global_worker.original_visible_accelerator_ids["GPU"]
            return None if entries is None else ",".join(entries)
    return os.environ.get(CUDA_VARIABLE)
