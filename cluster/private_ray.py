"""A Ray of our own: local, loopback only, without dashboard, gone when we are.

``ray.init`` alone would listen on every interface, write a token into the user's home, take over the SIGTERM handler,
share /tmp/ray with strangers, start three processes nobody here needs, and talk on stdout and stderr. This module
starts the same Ray without that. Most of it has public switches; ``_lean`` names the others and what each buys
(measured on 2 cores: 2.7 s to start and 1.1 s to stop became 1.4 s and 0.35 s, and 9 processes became 6).
"""

import ctypes
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import FleetUnavailable
from . import machine, undertaker
from .ray_words import first_line
from .undertaker import end_processes_in
from .visible_device import CUDA_VARIABLE, open_nvml, shown_gpus

__all__ = [
    "DEATH_KNOBS",
    "NAMESPACE",
    "PrivateRay",
    "environment",
    "reread_environment",
    "start_private_ray",
    "without_relayed_messages",
]

NAMESPACE = "codecfleet"

DEATH_KNOBS = {
    "RAY_timeout_ms_task_wait_for_death_info": "50",
    "RAY_core_worker_internal_heartbeat_ms": "100",
}
"""Read by the driver alone: a call to a process on a crashed node fails after 0.1 s, not 2 s."""

_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_CLIENT_MODE")  # in our own process, for a debugger and a client we do not use
_NO_HELPERS: Mapping[str, Any] = {"no_monitor": True, "include_log_monitor": False}
_STORE_MAX_BYTES = 512 << 20
_STORE_MIN_BYTES = 80 << 20  # Ray refuses less than 75 MiB
_SHARED_MEMORY_FLOOR_BYTES = 128 << 20
_PRESTART_CORES_MAX = 4
_BASE_LENGTH_MAX = 25  # a Unix socket's path ends at 107 characters, and we and Ray add up to 82
_SIGACTION_BYTES = 512  # struct sigaction has 152 on 64-bit Linux
_REGISTER_S = 90.0  # Ray's own 30 s are not enough on a machine that is busy with other things
_STALE_AFTER_S = 60.0
_PREFIX = "cf-ray-"


@dataclass(frozen=True, slots=True)
class PrivateRay:
    """A running private Ray, to be stopped by the thread that started it."""

    directory: Path
    """Ours alone; Ray's own, inside it, is open to everybody."""
    lock: int
    undertaker: "subprocess.Popen[bytes]"
    former_log_level: int

    def is_alive(self) -> bool:
        """Whether the processes that make up a Ray node all run."""
        from ray._private import worker  # noqa: PLC0415 - see _init

        node: Any = worker._global_node  # noqa: SLF001 - no public way
        return node is not None and not node.dead_processes()

    def stop(self) -> None:
        """End every process of it, wait until they are gone, and remove what it wrote."""
        import ray  # noqa: PLC0415 - see _init

        with sigterm_untouched():
            ray.shutdown(wait_for_processes=True)
        logging.getLogger("ray").setLevel(self.former_log_level)
        reread_environment()
        self.bury()

    def bury(self) -> None:
        """Remove its files, and make sure that nobody lives who still writes them."""
        os.close(self.lock)
        end_processes_in(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        with suppress(OSError):  # it may have been killed
            self.undertaker.communicate(b"closed in good order\n")


def start_private_ray() -> PrivateRay:
    """Start Ray on this machine. Its processes die with the calling *thread*: keep that thread until ``stop``.

    Blocks for about two seconds.

    Raises:
        FleetUnavailable: there is no place to write, or a process of Ray did not come up.
    """
    _sweep()
    directory, lock = _make_directory()
    started = PrivateRay(directory, lock, _hire_undertaker(directory), logging.getLogger("ray").level)
    try:
        _init(directory)
    except Exception as error:
        import ray  # noqa: PLC0415 - see _init

        with suppress(Exception), sigterm_untouched():  # it may have nothing to shut down
            ray.shutdown()
        started.bury()
        message = f"the embedded Ray did not start: {first_line(error)}"
        raise FleetUnavailable(
            message, "Check free space, memory and process limits; RAY_TMPDIR moves its files."
        ) from error
    return started


@contextmanager
def sigterm_untouched() -> Iterator[None]:
    """Keep the disposition of SIGTERM as the kernel has it, whatever Ray does to it inside.

    Connecting installs a C handler that prints stack frames before it calls the former one; disconnecting resets to
    the default, so that a handler of the user's would be lost. Python's ``signal`` sees neither, and works in the main
    thread only: hence the C library.
    """
    sigaction = ctypes.CDLL(None).sigaction
    former = ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(int(signal.SIGTERM), None, former)
    try:
        yield
    finally:
        sigaction(int(signal.SIGTERM), former, None)


def _hire_undertaker(directory: Path) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-I", "-S", undertaker.__file__, str(directory)]
    # Its own session: a Ctrl-C in the terminal is not meant for it.
    return subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - our own file


def _init(directory: Path) -> None:
    cores = machine.cores()
    variables = {
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # chosen either way, so that Ray does not warn about the choice
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # everything listens on 127.0.0.1 only, on Linux too
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray starts a Python per core ahead of need; we use one per eight.
        "RAY_prestart_worker_first_driver": "1" if cores <= _PRESTART_CORES_MAX else "0",
        **{knob: os.environ.get(knob, value) for knob, value in DEATH_KNOBS.items()},
    }
    slices = _slices_for_ray()
    if slices is not None:
        variables[CUDA_VARIABLE] = slices
    with environment(variables), sigterm_untouched():
        import ray  # noqa: PLC0415 - it reads its environment when it is imported

        reread_environment()  # it may have been imported before
        with _lean():
            ray.init(
                address="local",
                namespace=NAMESPACE,
                num_cpus=cores,
                num_gpus=None if slices is None else slices.count(",") + 1,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_store_bytes(machine.memory_bytes(), machine.shared_memory_free_bytes()),
                _temp_dir=str(directory / "r"),
            )


def _slices_for_ray() -> str | None:
    """Return what CUDA_VISIBLE_DEVICES must be for Ray to count each MIG slice of this machine; None without slices."""
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        return shown_gpus(nvml, os.environ).for_ray
    finally:
        nvml.nvmlShutdown()


def _store_bytes(memory_bytes: int, shared_memory_free_bytes: int) -> int:
    """Return the size of the object store: an eighth of the memory, 512 MiB at most.

    It fits into shared memory unless that is tiny (64 MiB in a plain container): then Ray maps a file instead.
    """
    wanted = min(_STORE_MAX_BYTES, memory_bytes // 8)
    if shared_memory_free_bytes >= _SHARED_MEMORY_FLOOR_BYTES:
        wanted = min(wanted, shared_memory_free_bytes * 3 // 4)
    return max(wanted, _STORE_MIN_BYTES)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and put them back as they were: Ray's processes inherit them, the user's do not."""
    former = {name: os.environ.get(name) for name in (*variables, *_SET_BY_RAY)}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def reread_environment() -> None:
    """Make an imported Ray forget the settings and the token it once read from the environment."""
    from ray import _raylet  # noqa: PLC0415 - see _init

    # The stubs of Ray's compiled module leave both out.
    _raylet.Config.initialize("")  # type: ignore[attr-defined]
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]


@contextmanager
def without_relayed_messages() -> Iterator[None]:
    """Connect without Ray's relay that prints the cluster's messages to *stdout*: what they say we raise as errors."""
    from ray._private import worker  # noqa: PLC0415 - see _init

    with _replaced([(worker, "listen_error_messages", _nothing)]):
        yield


@contextmanager
def _lean() -> Iterator[None]:
    """Start Ray without what only clusters need."""
    from ray._private import parameter, ray_constants, services, utils  # noqa: PLC0415 - see _init

    replacements: list[tuple[ModuleType, str, Any]] = [
        # No autoscaler and no log forwarder: two Pythons less, and no waiting for them to end.
        (parameter, "RayParams", partial(parameter.RayParams, **_NO_HELPERS)),
        # No dashboard: include_dashboard=False only starts an empty one, and waits a second for it.
        (services, "start_api_server", _no_dashboard),
        # No dashboard agent but the bare stub that Ray's node waits for: nothing that samples, serves or scrapes.
        (utils, "get_dashboard_dependency_error", _no_dashboard_packages),
        # The node registers 0.8 s after its start, but Ray looks only once a second.
        (services, "get_node", partial(_get_node_soon, services.get_node)),
        # The same as the environment variable, for a Ray that was imported before we could set it.
        (ray_constants, "ENABLE_RAY_CLUSTER", False),
        # Under `uv run` Ray would pack the working directory and start its workers through uv.
        (ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False),
    ]
    with _replaced(replacements), without_relayed_messages():
        yield


@contextmanager
def _replaced(replacements: list[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    """Replace attributes of Ray's modules, and put them back for a later ``ray.init`` of the user's."""
    former = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    for module, name, value in replacements:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in former:
            setattr(module, name, value)


def _nothing(*_: object) -> None:
    pass


def _no_dashboard(*_: object, **__: object) -> tuple[None, None]:
    return None, None


def _no_dashboard_packages() -> ImportError:
    return ImportError("the embedded Ray has no dashboard")


def _get_node_soon(get_node: Callable[[str, str], object], gcs_address: str, node_id: str) -> object:
    from ray._private import services, state  # noqa: PLC0415 - see _init

    view = state.GlobalState()
    view._initialize_global_state(services._get_gcs_client_options(gcs_address))  # noqa: SLF001 - no public way
    until = time.monotonic() + _REGISTER_S
    while time.monotonic() < until and all(node["NodeID"] != node_id for node in view.node_table()):
        time.sleep(0.02)
    return get_node(gcs_address, node_id)


def _bases() -> list[Path]:
    chosen = os.environ.get("RAY_TMPDIR")
    if chosen:
        return [Path(chosen)]
    return [Path(base) for base in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp"))]  # noqa: S108 - fallbacks


def _make_directory() -> tuple[Path, int]:
    """Create a directory that only we can read, and lock it for as long as we live."""
    problem = "no temporary directory has a path short enough for Ray's sockets"
    for base in _bases():
        if len(str(base)) > _BASE_LENGTH_MAX:
            problem = f"{base} is longer than the {_BASE_LENGTH_MAX} characters that leave room for Ray's sockets"
            continue
        try:
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            problem = f"{base} cannot be written: {error.strerror}"
        else:
            return directory, lock
    message = f"the embedded Ray has no place for its files: {problem}"
    raise FleetUnavailable(message, "Set RAY_TMPDIR to a short path that is writable and has free space.")


def _sweep() -> None:
    """Remove the directories of drivers that were killed: nobody holds their locks."""
    for base in _bases():
        for directory in base.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if time.time() - directory.stat().st_mtime > _STALE_AFTER_S:
                    _remove_if_unlocked(directory)


def _remove_if_unlocked(directory: Path) -> None:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError, an OSError, if its driver lives
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
