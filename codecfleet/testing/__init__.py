"""Fakes for codecfleet's tests, and for tests of programs that use codecfleet.

``LocalPool`` runs work in threads of this process; ``FaultyPool`` injects faults into a pool; ``works`` has tiny work
items that test a pool's promises. ``FakeNvml`` answers pynvml's calls for a simulated machine. ``FakeClusterBackend``
is a cluster in memory, whose workers run in threads, for a supervisor. ``FakeHosts`` replaces the processes of a
fleet's hosts, and ``FakeProcesses`` those of workers. ``FakeJobServer`` accepts Ray jobs. ``FakeClock`` is a clock that
only the test advances.
"""

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
