"""Ray's internals are used only if they have the expected form."""

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest

from codecfleet.cluster.ray.private.autoscaler import autoscaler_report, end_idle_node, knows_labels
from codecfleet.cluster.ray.private.connection import quiet_connection, reread_environment
from codecfleet.cluster.ray.private.guard import OFF, SWITCH
from codecfleet.cluster.ray.private.lean_start import lean_start, why_no_lean_start
from codecfleet.cluster.ray.private.lost_gpu import lost_gpu_allowed
from codecfleet.cluster.ray.private.nodes import (
    cuda_visible_to_node,
    drain_for,
    draining_nodes,
    free_resources_by_node,
    without_client_port,
)


class GlobalState:
    """The class as Ray has it."""

    def _initialize_global_state(self, gcs_options: object) -> None: ...

    def node_table(self) -> None:
        """Return the nodes."""


MODULES = {
    "worker": {
        "listen_error_messages": lambda worker, threads_stopped: (worker, threads_stopped),
        "init": lambda address, _temp_dir: (address, _temp_dir),
    },
    "parameter": {"RayParams": lambda no_monitor, include_log_monitor=True: (no_monitor, include_log_monitor)},
    "ray_constants": {"ENABLE_RAY_CLUSTER": True, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": True},
    "node": {"wait_for_persisted_port": lambda *_, timeout_ms, **__: timeout_ms},
    "services": {
        "start_ray_process": lambda command, process_type, fate_share: SimpleNamespace(
            process=command, all=(process_type, fate_share)
        ),
        "_get_gcs_client_options": lambda gcs_server_address: gcs_server_address,
        "get_node": lambda gcs_address, node_id: (gcs_address, node_id),
        "start_api_server": lambda **_: None,
    },
    "state": {"GlobalState": GlobalState},
    "utils": {"get_dashboard_dependency_error": lambda: None, "get_entrypoint_name": lambda: "python film.py"},
}
"""What the lean start expects of ``ray._private``."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A Ray of a tested version with these modules."""
    package, private = ModuleType("ray"), ModuleType("ray._private")
    vars(package).update(__path__=[], __version__="2.60.3", _private=private)
    vars(private).update(__path__=[])
    monkeypatch.setitem(sys.modules, "ray", package)
    monkeypatch.setitem(sys.modules, "ray._private", private)
    for name, attributes in MODULES.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        setattr(private, name, module)
        monkeypatch.setitem(sys.modules, f"ray._private.{name}", module)
    return SimpleNamespace(package=package, **{name: getattr(private, name) for name in MODULES})


def test_a_known_ray_is_started_lean_and_left_as_it_was(ray: SimpleNamespace) -> None:
    """During the start, the parts that only clusters need are gone; afterwards, every attribute is Ray's own."""
    before = {name: dict(vars(module)) for name, module in vars(ray).items()}
    noted: list[tuple[str, object]] = []
    assert why_no_lean_start() == ""
    with lean_start(lambda *process: noted.append(process), lambda: None):
        assert ray.parameter.RayParams() == (True, False)
        assert ray.services.start_api_server(1, host="h") == (None, None)
        assert isinstance(ray.utils.get_dashboard_dependency_error(), ImportError)
        assert ray.worker.listen_error_messages(1, 2) is None
        assert ray.utils.get_entrypoint_name() == "codecfleet"
        assert ray.ray_constants.ENABLE_RAY_CLUSTER is False
        assert ray.ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV is False
        assert ray.services.get_node is not before["services"]["get_node"]
        assert ray.node.wait_for_persisted_port("here", "n", "gcs", timeout_ms=30_000) < 1000
        ray.services.start_ray_process("process 7", "raylet", fate_share=True)
    assert {name: dict(vars(module)) for name, module in vars(ray).items()} == before
    assert noted == [("raylet", "process 7")]


def test_no_port_is_waited_for_after_the_process_ended(ray: SimpleNamespace) -> None:
    """The port of a process that never publishes one is awaited only until the start is known to have failed."""

    def never(*_: object, timeout_ms: int, poll_interval_ms: int) -> int:
        raise RuntimeError(timeout_ms, poll_interval_ms)

    ray.node.wait_for_persisted_port = never
    checks = iter([None, None])
    with lean_start(lambda *_: None, lambda: next(checks)), pytest.raises(StopIteration):
        ray.node.wait_for_persisted_port("here", "n", "gcs", timeout_ms=30_000)


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "2.6.0", "3.0.0", "2.600.0"])
def test_a_version_that_was_not_tested_is_not_started_lean(ray: SimpleNamespace, version: str) -> None:
    """A minor version of Ray that was not tested is refused before anything is examined or replaced."""
    ray.package.__version__ = version
    assert why_no_lean_start() == f"codecfleet was not tested with Ray {version}"
    relay = ray.worker.listen_error_messages
    with quiet_connection():
        assert ray.worker.listen_error_messages is relay


@pytest.mark.parametrize(
    ("module", "attribute", "found"),
    [
        ("worker", "listen_error_messages", lambda: None),
        ("parameter", "RayParams", lambda no_monitor: no_monitor),
        ("ray_constants", "ENABLE_RAY_CLUSTER", "1"),
        ("services", "_get_gcs_client_options", None),
        ("state", "GlobalState", None),
    ],
)
def test_an_attribute_of_another_shape_is_noticed(
    ray: SimpleNamespace, module: str, attribute: str, found: object
) -> None:
    """If an attribute is missing or has another signature, the lean start is refused, and the attribute is named."""
    setattr(getattr(ray, module), attribute, found)
    assert why_no_lean_start().startswith(f"its ray._private.{module}.{attribute}")
    delattr(getattr(ray, module), attribute)
    assert why_no_lean_start().startswith(f"its ray._private.{module}.{attribute}")


def test_calls_that_ray_does_not_know_are_not_made(ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the internals, nothing is known about nodes, no node is ended, and no setting is reread."""
    del ray
    monkeypatch.setitem(sys.modules, "ray._raylet", ModuleType("ray._raylet"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    monkeypatch.setenv("RAY_enable_autoscaler_v2", "1")
    assert free_resources_by_node() == {}
    assert not draining_nodes()
    assert cuda_visible_to_node() == "GPU-1"
    assert not reread_environment()
    assert autoscaler_report() is None
    assert not end_idle_node("node", "it is idle")
    assert knows_labels()


def test_a_node_drains_for_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads the time when it gets SIGTERM; without its internals it keeps the time of its environment."""
    constants = import_module("ray._private.ray_constants")
    monkeypatch.setattr(constants, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", 60.0)
    drain_for(25)
    assert constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S == 25
    monkeypatch.setenv(SWITCH, OFF)
    drain_for(10)
    assert constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S == 25


class DrainingNode:
    """The node of ``ray start``, with its handler of SIGTERM."""

    drained_s: float | None = None

    def _drain_node_before_shutdown(self) -> None:
        """Note for how long."""
        self.drained_s = import_module("ray._private.ray_constants").RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S

    def handler(self, *, has_heard: bool) -> Callable[[int, object], None]:
        """Return a handler with the variables of Ray's."""
        sigterm_received = has_heard

        def handle(*_: object) -> None:
            self.drained_s = sigterm_received

        return handle


@pytest.mark.parametrize(("has_heard", "drained_s"), [(True, 25), (False, None)])
def test_a_draining_node_is_told_its_new_end(
    monkeypatch: pytest.MonkeyPatch, *, has_heard: bool, drained_s: int | None
) -> None:
    """A node that does not drain yet reads the time when it gets SIGTERM."""
    monkeypatch.setattr(import_module("ray._private.ray_constants"), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", 60.0)
    node = DrainingNode()
    before = signal.signal(signal.SIGTERM, node.handler(has_heard=has_heard))
    try:
        drain_for(25)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert node.drained_s == drained_s


def test_no_node_starts_whose_client_port_cannot_be_closed() -> None:
    """A Ray that has the port under another name would open it without a message, so no node starts."""
    known = SimpleNamespace(ray_client_server_port=10001)
    without_client_port(known, head=True)
    assert known.ray_client_server_port is None
    with pytest.raises(SystemExit, match="port 10001"):
        without_client_port(SimpleNamespace(client_port=10001), head=True)


def test_everything_private_can_be_switched_off(ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable switches off all uses of Ray's internals."""
    del ray
    monkeypatch.setenv("_CODECFLEET_RAY_PRIVATE", "off")
    assert why_no_lean_start() == "its internals are switched off"


def test_a_lost_first_gpu_has_no_name_while_ray_starts(monkeypatch: pytest.MonkeyPatch, ray: SimpleNamespace) -> None:
    """Ray asks NVML for the name; an NVMLError means None only during the start, and other errors are raised."""

    class NVMLError(Exception):
        """The error as NVML's binding has it."""

    class NvidiaGPUAcceleratorManager:
        """The class as Ray has it."""

        error: Exception = NVMLError("GPU is lost")

        @staticmethod
        def get_current_node_accelerator_type() -> str | None:
            raise NvidiaGPUAcceleratorManager.error

    manager = NvidiaGPUAcceleratorManager
    for name, attributes in {
        "accelerators": {manager.__name__: manager},
        "thirdparty": {"__path__": []},
        "thirdparty.pynvml": {"NVMLError": NVMLError},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, f"ray._private.{name}", module)
    with lost_gpu_allowed():
        assert manager.get_current_node_accelerator_type() is None
        manager.error = ValueError("a defect")
        with pytest.raises(ValueError, match="a defect"):
            manager.get_current_node_accelerator_type()
    manager.error = NVMLError("GPU is lost")
    ray.package.__version__ = "2.61.0"
    with lost_gpu_allowed(), pytest.raises(NVMLError):
        manager.get_current_node_accelerator_type()
    assert isinstance(vars(manager)["get_current_node_accelerator_type"], staticmethod)
