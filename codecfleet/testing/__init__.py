"""Fakes for codecfleet's tests, and for tests of programs that use codecfleet.

``LocalPool`` runs work in threads of this process; ``FaultyPool`` injects faults into a pool; ``works`` has tiny work
items that test a pool's promises. ``FakeNvml`` answers pynvml's calls for a simulated machine. ``FakeClusterBackend``
is a cluster in memory, whose workers run in threads, for a supervisor. ``FakeHosts`` replaces the processes of a
fleet's hosts, and ``FakeProcesses`` those of workers. ``FakeJobServer`` accepts Ray jobs. ``FakeClock`` is a clock that
only the test advances.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fake_clock import FakeClock
    from .fleet.fake_backend import FakeClusterBackend
    from .fleet.fake_job_server import FakeJobServer
    from .fleet.fake_processes import FakeHosts, FakeProcesses
    from .fleet.local_pool import FaultyPool, LocalPool
    from .nvml.fake_nvml import FakeNvml

__all__ = [
    "FakeClock",
    "FakeClusterBackend",
    "FakeHosts",
    "FakeJobServer",
    "FakeNvml",
    "FakeProcesses",
    "FaultyPool",
    "LocalPool",
]

_HOMES = {
    "FakeClock": "fake_clock",
    "FakeClusterBackend": "fleet.fake_backend",
    "FakeHosts": "fleet.fake_processes",
    "FakeJobServer": "fleet.fake_job_server",
    "FakeNvml": "nvml.fake_nvml",
    "FakeProcesses": "fleet.fake_processes",
    "FaultyPool": "fleet.local_pool",
    "LocalPool": "fleet.local_pool",
}
"""The module of each name, imported at the first use, because a program with one fake, or a worker, needs no other."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
