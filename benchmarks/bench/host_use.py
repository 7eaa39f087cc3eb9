"""How much of the host's processor time a measurement took."""

import os
import time
from pathlib import Path
from typing import NamedTuple, Self

__all__ = ["Counts", "HostUse", "counts_in"]

_STAT = Path("/proc/stat")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Counts(NamedTuple):
    """Linux's counters since boot, for all cores together (``man 5 proc_stat``)."""

    busy_s: float
    stolen_s: float
    at_s: float


class HostUse:
    """The average number of busy cores while a block ran, and of cores that the hypervisor gave to others.

    The whole machine is counted, so nothing but the benchmark should run on it.
    """

    def __init__(self) -> None:
        self.busy_cores = 0.0
        self.stolen_cores = 0.0

    def __enter__(self) -> Self:
        self._before = _counts()
        return self

    def __exit__(self, *_: object) -> None:
        after = _counts()
        elapsed_s = after.at_s - self._before.at_s
        self.busy_cores = (after.busy_s - self._before.busy_s) / elapsed_s
        self.stolen_cores = (after.stolen_s - self._before.stolen_s) / elapsed_s


def _counts() -> Counts:
    at_s = time.monotonic()
    return counts_in(_STAT.read_text(encoding="ascii"), at_s)


def counts_in(stat: str, at_s: float) -> Counts:
    """Return ``/proc/stat``'s counters of all cores; guest time is part of user time."""
    user, nice, system, _idle, _waiting, hard, soft, stolen = (int(ticks) for ticks in stat.split()[1:9])
    return Counts((user + nice + system + hard + soft) / _TICKS_PER_S, stolen / _TICKS_PER_S, at_s)
