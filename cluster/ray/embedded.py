"""Connects to Ray: over this process's existing connection, to a named cluster, or to a private Ray.

Ray allows one connection per process, so all users share the connection. It ends when the last user closes it, unless
the process was connected already.
"""

import asyncio
import atexit
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeVar

from ...actors.background import settle
from ...errors import FleetUnavailable, UsageError
from ..probes.child.child import ChildOutcome, run_in_child
from .private.connection import cluster_on_this_machine, greet_cluster, quiet_connection, reread_environment
from .private.words import NO_CLUSTER_ID, TOKEN_REFUSED
from .private_ray import NAMESPACE, PrivateRay, start_private_ray
from .ray_environment import cluster_variables, environment, named_cluster, plain_names
from .ray_words import first_line
from .sigterm import sigterm_untouched
from .token import lacks_token

T = TypeVar("T")

REACH_S = 5.0  #: How long a cluster may take to accept a connection
GREET_S = 8.0  #: How long the check of a cluster's token may take; usually it takes as long as the import of Ray
EXIT_S = 5.0


class Origin(Enum):
    """The origin of a Ray, which decides what happens when the last share is closed."""

    FOUND = "found"  #: this process was already connected; codecfleet never starts, stops or configures this Ray
    CLUSTER = "cluster"  #: a cluster that codecfleet joined; closing the last share disconnects
    PRIVATE = "private"  #: a private Ray that codecfleet started; closing the last share stops it


@dataclass(slots=True, eq=False)
class Connection:
    """A share of this process's connection to Ray; ``notes`` are lines for a job's report."""

    origin: Origin
    notes: tuple[str, ...] = ()
    _closed: bool = field(default=False, repr=False)

    @property
    def is_private(self) -> bool:
        """Whether no other program can use this Ray."""
        return self.origin is Origin.PRIVATE

    def why_ended(self) -> str:
        """Return why a private Ray is lost; "" while it runs, or if this Ray is not private."""
        if not self.is_private:
            return ""
        return "it was closed" if _shared.private is None else _shared.private.liveness.why_ended()

    async def close(self) -> None:
        """Release the share. The last release ends the connection, which takes 0.3 s for a private Ray. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(asyncio.wrap_future(_ray_thread.call(lambda: _give_back(self.origin))))


async def connect(address: str | None = None) -> Connection:
    """Return a share of a connection to Ray.

    A Ray driver, task, actor or job uses its existing connection. Otherwise this joins the cluster at ``address`` or
    RAY_ADDRESS ("host:port", or "auto" for the cluster on this machine), or starts a private Ray (docs/fleet.md).

    Raises UsageError: the address has another form, or this process is already connected to another cluster;
    FleetUnavailable: Ray cannot be reached or started.
    """
    asked = _ray_thread.call(lambda: _take(address))
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_return_unwanted)
        raise


def _return_unwanted(asked: "Future[Connection]") -> None:
    if not asked.cancelled() and asked.exception() is None:
        _ray_thread.call(lambda: _give_back(asked.result().origin))


class _RayThread:
    """The thread that opens and closes Ray, one request after the other, until the process ends.

    The kernel kills Ray's processes when the *thread* that started them ends, and the threads of an executor may end.
    Ray replaces signal handlers only in the main thread, and so not in this thread.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(self, action: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                settle(future, action)

        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="codecfleet-ray", daemon=True)
                self._thread.start()
        self._requests.put(run)
        return future

    def _serve(self) -> None:
        while True:
            self._requests.get()()


@dataclass(slots=True)
class _Shared:
    """This process's connection. Only the Ray thread uses it."""

    shares: int = 0
    origin: Origin = Origin.FOUND
    address: str | None = None
    private: PrivateRay | None = None


_ray_thread = _RayThread()
_shared = _Shared()


def _take(address: str | None) -> Connection:
    address = _cluster_of(address)
    if _shared.shares > 0:
        return _take_another(address)
    if "ray" in sys.modules:
        import ray

        if ray.is_initialized():
            return Connection(Origin.FOUND, _note_ignored(address))
    if address is None:
        imported = (_NOTE_IMPORTED,) if _others_imported_ray() else ()
        _shared.private = start_private_ray()
        notes = (*imported, *_shared.private.notes)
        _shared.origin = Origin.PRIVATE
    else:
        notes = ()
        _join(address)
        _shared.origin = Origin.CLUSTER
    _shared.address, _shared.shares = address, 1
    atexit.unregister(_end_at_exit)
    atexit.register(_end_at_exit)  # registered after Ray's own handler, so that it runs before that handler
    return Connection(_shared.origin, notes)


@cache
def _others_imported_ray() -> bool:
    """Return whether Ray was imported before this module first started it; Ray then did not read our settings."""
    return "ray" in sys.modules


def _take_another(address: str | None) -> Connection:
    if address != _shared.address:
        message = f"this process already uses {_name(_shared.address)}, so it cannot use {_name(address)} too"
        raise UsageError(message, "Close the other fleet first, or use another process.")
    _shared.shares += 1
    return Connection(_shared.origin)


def _give_back(origin: Origin) -> None:
    if origin is Origin.FOUND or _shared.shares == 0:
        return
    _shared.shares -= 1
    if _shared.shares == 0:
        _end()


def _end() -> None:
    if _shared.private is not None:
        private, _shared.private = _shared.private, None
        private.stop()
        return
    import ray

    with sigterm_untouched():
        ray.shutdown()
    reread_environment()


def _end_at_exit() -> None:
    """End a connection that was not closed, while the Ray thread still runs."""

    def end() -> None:
        if _shared.shares > 0:
            _shared.shares = 0
            _end()

    _ray_thread.call(end).exception(EXIT_S)


def _cluster_of(address: str | None) -> str | None:
    cluster = named_cluster(address)
    if cluster is not None and "://" in cluster:
        message = f"{cluster} is not the address of a Ray cluster's control service"
        step = "Give host:port (the default port is 6379), or submit the command with `ray job submit`."
        raise UsageError(message, step)
    return cluster


def check_joinable(address: str) -> None:
    """Check that a cluster answers and admits this machine, without joining the cluster.

    Raises UsageError: the address has another form; FleetUnavailable: the cluster does not answer, or refuses our
    token.
    """
    with environment(cluster_variables(os.environ)):
        _check_reachable(address)
        if refusal := refusal_in(run_in_child(greet_cluster, {"address": address}, GREET_S, _HASTE), address):
            raise refusal


def _join(address: str) -> None:
    with environment(cluster_variables(os.environ)), plain_names(Path("/")):
        address = _found_here() if address == "auto" else address
        _check_reachable(address)
        with ThreadPoolExecutor(1) as beside:
            greeting = beside.submit(run_in_child, greet_cluster, {"address": address}, GREET_S, _HASTE)
            import ray
        if refusal := refusal_in(greeting.result(), address):
            raise refusal
        reread_environment()
        try:
            with quiet_connection(), sigterm_untouched():
                ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # Ray raises errors of many kinds
            raise FleetUnavailable(f"Ray at {address} did not let us in: {first_line(error)}", _JOIN_HELP) from error


_HASTE = {"RAY_gcs_rpc_server_connect_timeout_s": "1", "RAY_py_gcs_connect_timeout_s": "1"}


def refusal_in(greeting: ChildOutcome, address: str) -> FleetUnavailable | None:
    """Return why a cluster cannot be joined, from the output of a process that tried; None if the output does not say.

    A separate process tries first, because Ray would try again for up to a minute and print every attempt.
    """
    if TOKEN_REFUSED in greeting.detail + greeting.said:
        return _not_let_in(address)
    if not greeting.returned and NO_CLUSTER_ID in greeting.said:
        message = f"no Ray answers at {address}: another program uses that port, or Ray does not respond"
        return FleetUnavailable(message, _CHECK_ADDRESS)
    return None


def _not_let_in(address: str) -> FleetUnavailable:
    message = f"Ray at {address} did not let us in: the token is missing or wrong"
    return FleetUnavailable(message, "Copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN to its content.")


_JOIN_HELP = (
    "Run on a node of the cluster or through `ray job submit`, with the cluster's Ray version, and set "
    "RAY_AUTH_TOKEN if the cluster requires a token."
)


def _check_reachable(address: str) -> None:
    if address != "auto":  # the address is still "auto" only if this Ray cannot resolve it
        check_accepts(address)
    if lacks_token(os.environ):  # Ray's own error fills a page
        raise _not_let_in(address)


def check_accepts(address: str) -> None:
    """Try to connect for only ``REACH_S``, because Ray would try for a minute.

    Raises UsageError: the address has another form; FleetUnavailable: nothing accepts a connection there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        message = f"{address} is not an address of the form host:port"
        raise UsageError(message, "Give host:port; Ray's default port is 6379.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        message = f"no Ray answers at {address}: {error.strerror or error}"
        raise FleetUnavailable(message, _CHECK_ADDRESS) from error


_CHECK_ADDRESS = "Check the address, and that the cluster is up and reachable from here."


def _found_here() -> str:
    found = cluster_on_this_machine()
    if found == "":
        raise FleetUnavailable("no Ray runs on this machine", "Start Ray, or give the cluster's address, host:port.")
    return found or "auto"


def _note_ignored(address: str | None) -> tuple[str, ...]:
    if address in (None, "auto"):
        return ()
    import ray

    here = ray.get_runtime_context().gcs_address
    return () if address == here else (f"this process is connected to the Ray at {here}, so {address} was ignored",)


_NOTE_IMPORTED = "ray was imported before codecfleet started it, so settings that Ray reads at import may differ"


def _name(address: str | None) -> str:
    return "its own Ray" if address is None else f"the Ray at {address}"
