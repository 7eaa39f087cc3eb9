"""A private Ray, which runs on this machine, listens on loopback only, has no dashboard, and ends with this process.

``ray.init`` alone would listen on every interface, write a token into the user's home, replace the SIGTERM handler,
share /tmp/ray with other users, and print. ``lean_start`` also saves three processes and half of the time.
"""

import logging
import os
import secrets
import shutil
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from ...actors.process.running import Prints, Running, start_command
from ...errors import FleetUnavailable
from .. import machine
from ..probes.cuda.choosing import LIBRARY_PATH
from ..probes.cuda.driver import workers_driver
from ..probes.gpus.visible_device import CUDA_VARIABLE, open_nvml, shown_gpus
from . import orphan_reaper
from .liveness import Liveness
from .object_store import store_bytes
from .orphan_reaper import end_processes_in, open_files, processes_in
from .private.connection import reread_environment
from .private.guard import TESTED_MINORS
from .private.lean_start import init_lean, why_no_lean_start
from .private.lost_gpu import lost_gpu_allowed
from .ray_directory import make_directory, sweep
from .ray_environment import environment, plain_names, private_variables, unreadable_settings
from .ray_words import first_line
from .sigterm import sigterm_untouched
from .start_watch import CHECK_SPACE, StartWatch

NAMESPACE = "codecfleet"

_PRESTART_CORES_MAX = 4
_DRIVER_LIMIT_S = 20.0  #: How long a trial of a CUDA compat package may take
_LISTEN = "0A"  #: TCP_LISTEN of linux/net/tcp_states.h, in the form that proc_pid_net(5) prints


@dataclass(frozen=True, slots=True)
class PrivateRay:
    """A private Ray that runs. The thread that started it must also stop it."""

    directory: Path  #: a directory that only this user can enter; Ray's own directory inside it is open to all
    lock: int  #: the descriptor of the directory's lock
    orphan_reaper: Running  #: the process that cleans up if this process is killed
    former_log_level: int  #: the level of Ray's logger before the start
    liveness: Liveness = field(default_factory=Liveness)  #: watches Ray's processes
    notes: tuple[str, ...] = ()  #: lines for a job's report

    def stop(self) -> None:
        """End all of Ray's processes, wait for them, and remove Ray's files."""
        import ray

        self.liveness.wake()
        with sigterm_untouched():
            ray.shutdown(wait_for_processes=True)
        logging.getLogger("ray").setLevel(self.former_log_level)
        with environment(unreadable_settings(os.environ)):
            reread_environment()
        self.remove_files()

    def remove_files(self) -> None:
        """Remove Ray's files, and kill any process that still writes to them."""
        os.close(self.lock)
        end_processes_in(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        with self.orphan_reaper.end as end, suppress(OSError):  # the reaper may have been killed
            end.sendall(b"closed in good order\n")
        self.orphan_reaper.ended()


def start_private_ray() -> PrivateRay:
    """Start Ray on this machine in about two seconds. Its processes end with the calling *thread*.

    Raises FleetUnavailable: no directory is writable, or a process of Ray did not start.
    """
    sweep()
    directory, lock = make_directory()
    started = PrivateRay(directory, lock, _start_orphan_reaper(directory), logging.getLogger("ray").level)
    watch = StartWatch(directory)
    try:
        notes = _init(directory, watch)
    except Exception as error:  # Ray raises errors of many kinds; after an error, no part of Ray may remain
        import ray

        with suppress(Exception), sigterm_untouched():  # there may be nothing to shut down
            ray.shutdown()
        started.remove_files()
        watch.reap()
        if isinstance(error, FleetUnavailable):
            raise
        message = f"the private Ray did not start: {first_line(error)}"
        raise FleetUnavailable(message, CHECK_SPACE) from error
    return replace(started, liveness=Liveness(processes_in(directory)), notes=notes)


def _start_orphan_reaper(directory: Path) -> Running:
    program = [sys.executable, "-I", "-S", orphan_reaper.__file__, str(directory)]
    return start_command(program, prints=Prints.KEPT)


def _init(directory: Path, watch: StartWatch) -> tuple[str, ...]:
    cores = machine.cores()
    chosen = {
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns unless this variable is set
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
        # without this, Ray packs the working directory and starts workers with uv
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes all servers listen on 127.0.0.1 only, on Linux too
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",  # an agent would serve metrics to everybody, without a token
        # Ray would start one Python process per core in advance, but one worker of codecfleet serves eight cores.
        "RAY_prestart_worker_first_driver": "1" if cores <= _PRESTART_CORES_MAX else "0",
    }
    choice = workers_driver(_DRIVER_LIMIT_S)
    if choice.search_path is not None:
        chosen[LIBRARY_PATH] = choice.search_path
    notes = tuple(filter(None, [choice.note]))
    slices = _slices_for_ray()
    if slices is not None:
        chosen[CUDA_VARIABLE] = slices
    with environment(private_variables(os.environ, chosen)), plain_names(directory), sigterm_untouched():
        imported_before = _import_ray()
        reread_environment()
        options: dict[str, Any] = {
            "address": "local",
            "namespace": NAMESPACE,
            "num_cpus": cores,
            "num_gpus": None if slices is None else slices.count(",") + 1,
            "include_dashboard": False,
            "log_to_driver": False,
            "logging_level": logging.CRITICAL,
            "object_store_memory": store_bytes(),
        }
        obstacle = why_no_lean_start()
        with lost_gpu_allowed():
            if not obstacle:
                init_lean(options, directory / "r", watch.note, watch.check)
                return notes
            _start_publicly(options, directory, imported_before=imported_before)
        return (*notes, f"Ray was started through its public options only, which takes longer: {obstacle}")


@cache
def _token() -> str:
    """Return this process's token, the same for all starts, because some versions of Ray keep the first token."""
    return secrets.token_hex(32)


@cache
def _import_ray() -> bool:
    """Import Ray, which then reads the current environment; return whether Ray was imported before."""
    imported_before = "ray" in sys.modules
    import_module("ray")
    return imported_before


def _start_publicly(options: Mapping[str, Any], directory: Path, *, imported_before: bool) -> None:
    """Start Ray through its public interface, and check that Ray listens on loopback only."""
    import ray

    tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED_MINORS)
    advice = f"Install a version of Ray with which this codecfleet was tested: {tested}."
    if imported_before:
        message = f"Ray {ray.__version__} was imported before the fleet opened, and may not listen on loopback only"
        raise FleetUnavailable(message, f"Open the fleet before `import ray`. {advice}")
    with environment({"RAY_TMPDIR": str(directory)}):
        ray.init(**options)
    strangers = [str(found) for found in listening_addresses(processes_in(directory)) if not found.is_loopback]
    if strangers:
        message = f"Ray {ray.__version__} listens on {', '.join(sorted(strangers))}, not on loopback only"
        raise FleetUnavailable(message, advice)


def _slices_for_ray() -> str | None:
    """Return the CUDA_VISIBLE_DEVICES with which Ray counts each MIG slice; None if this machine has no slices."""
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        return shown_gpus(nvml, os.environ).for_ray
    finally:
        nvml.nvmlShutdown()


def listening_addresses(processes: Iterable[int]) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses on which ``processes`` listen; processes that have ended are ignored."""
    sockets = {str(file) for process in processes for file in open_files(process)}
    return frozenset(
        address
        for table in ("tcp", "tcp6")
        for address, inode in _listeners(Path("/proc/net") / table)
        if f"socket:[{inode}]" in sockets
    )


def _listeners(table: Path) -> list[tuple[IPv4Address | IPv6Address, str]]:
    """Return address and inode of each listening socket in a table; [] if the table is missing, as without IPv6."""
    with suppress(OSError):
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        return [(_address(row[1].partition(":")[0]), row[9]) for row in rows if row[3] == _LISTEN]
    return []


def _address(text: str) -> IPv4Address | IPv6Address:
    """Read an address that the kernel prints as 32-bit words in the byte order of the machine."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    found = ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
