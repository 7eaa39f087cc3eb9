"""The stages of a run with many worker actors; each returns its figures under their names."""

import math
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codecfleet.cluster.machine import CORES_PER_PROCESS

from .failures import CommandFailed
from .local_cluster import LocalCluster, ask
from .processes import ProcessTree, read_memory
from .ray_processes import cpu_s_by_kind
from .table import parts

if TYPE_CHECKING:
    import subprocess

__all__ = ["Stage", "WorkersRun"]

LOOK_S: Final = 0.7
"""Not a fraction of the time between heartbeats, so that looks find heartbeats of every age."""
START_LOOK_S: Final = 1.0
PROBES_S: Final = 60.0
OFTEN_S: Final = 0.25
WEIGHED: Final = 50
"""How many workers' memory is read."""
LOW_PRIORITY: Final = 10
_WORDS: Final = ("median", "99 %", "most")
SETTLE_S: Final = 60.0
"""How long workers may take to be adopted, counted as lost, or replaced."""

Found = dict[str, Any]
Stage = tuple[str, float, Callable[[], Found]]
"""A stage's name, how long it takes at most, and the stage."""


class WorkersRun:
    """A cluster whose nodes have no workers yet, and its driver; the stages run in order."""

    def __init__(
        self, cluster: LocalCluster, driver: "subprocess.Popen[str]", nodes: Sequence[str], workers_each: int
    ) -> None:
        self._cluster, self._driver = cluster, driver
        self._nodes, self._workers_each = list(nodes), workers_each

    def probe(self) -> Found:
        """Wait until the supervisor has started and probed every node."""
        began_s = time.monotonic()
        while self._look()["probed"] < len(self._nodes) and time.monotonic() - began_s < PROBES_S:
            time.sleep(START_LOOK_S)
        return {"seconds": time.monotonic() - began_s, "probed nodes": self._look()["probed"]}

    def start(self, at_once: int, ends_s: float) -> Found:
        """Ask for all workers, so that about ``at_once`` start at a time; stop at ``ends_s``."""
        began_s, before, most = time.monotonic(), cpu_s_by_kind(), len(self._nodes) * self._workers_each
        curve: list[tuple[float, int]] = [(0.0, 0)]
        troubles: set[str] = set()
        while curve[-1][1] < most and time.monotonic() < ends_s:
            self._want(min(most, curve[-1][1] + at_once))
            time.sleep(START_LOOK_S)
            status = self._look()
            troubles |= {each["reason"] for each in status["workers"] if each["state"] in ("resting", "quarantined")}
            curve.append((round(time.monotonic() - began_s, 2), len(_ready(status))))
        took_s, workers = curve[-1]
        if not workers:
            raise CommandFailed(f"no worker was ready in time: {', '.join(sorted(troubles)) or 'raise --limit-s'}")
        self._want(workers)
        _lower_priority(_pids(self._look()))
        used_s = {kind: used_s - before[kind] for kind, used_s in cpu_s_by_kind().items()}
        return {
            "workers": workers,
            "seconds until the last was ready": took_s,
            "MiB of memory of a worker": _memory_mib(self._look()),
            "threads of this machine": _threads(),
            **{f"CPU seconds of {kind}, for each worker": cpu_s / max(1, workers) for kind, cpu_s in used_s.items()},
            "curve": curve,
            "troubles": sorted(troubles)[:20],
        }

    def stages(self, stage_s: int, each_s: int) -> tuple[Stage, ...]:
        """Return the stages after the start; three last ``stage_s``, and work has ``each_s`` items a second."""
        return (
            ("without work", stage_s + 5, lambda: _shares(lambda: time.sleep(stage_s))),
            ("heartbeats", stage_s + 10, lambda: self._heartbeats(stage_s)),
            ("work", stage_s + 20, lambda: self._work(stage_s, each_s)),
            ("another supervisor", SETTLE_S, self._adopt),
            ("another node", SETTLE_S, self._replace),
        )

    def _work(self, seconds: int, each_s: int) -> Found:
        before = _pids(self._look())
        found: Found = {}
        shares = _shares(lambda: found.update(self._ask(work_s=seconds, each_s=each_s)))
        return {
            "items a second": len(found["took_s"]) / found["wall_s"],
            "failed": len(found["failed"]),
            "workers that were ended or replaced": len(before - _pids(self._look())),
            "share of a core: driver": found["driver_cpu_s"] / found["wall_s"],
            **shares,
            **_spread("seconds of an item", found["took_s"]),
        }

    def _heartbeats(self, seconds: int) -> Found:
        """Return how old the last heartbeats are, of every worker and of every node."""
        ages_s: list[float] = []
        by_node_s: list[float] = []
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            newest: dict[str, float] = {}
            for each in _ready(self._look()):
                if each["heard_s"] is not None:
                    ages_s.append(each["heard_s"])
                    node = _node(each)
                    newest[node] = min(each["heard_s"], newest.get(node, math.inf))
            by_node_s += newest.values()
            time.sleep(LOOK_S)
        return _spread("age of a worker's last heartbeat, s", ages_s) | _spread("of a node's last one, s", by_node_s)

    def _adopt(self) -> Found:
        """Kill the supervisor, and wait until the next one has all workers."""
        status = self._look()
        before, began_s = _pids(status), time.monotonic()
        os.kill(status["pid"], signal.SIGKILL)
        answered_s, after = 0.0, before
        while time.monotonic() - began_s < SETTLE_S:
            status = self._look(other_than=status["pid"]) if not answered_s else self._look()
            answered_s = answered_s or time.monotonic() - began_s
            after = _pids(status)
            if len(after) >= len(before):
                break
        return {
            "seconds until it answered": answered_s,
            "seconds until it had all workers": time.monotonic() - began_s,
            "workers": len(after),
            "workers that were ended or replaced": len(before - after),
        }

    def _replace(self) -> Found:
        """Kill a node without the supervisor, and start another node when its workers count as lost."""
        status = self._look()
        parents = {process.pid: process.parent for process in ProcessTree(os.getpid()).look()}
        busy = parents.get(status["pid"])
        away = next((each for each in _ready(status) if parents.get(each["pid"]) != busy), None)
        if away is None:
            raise CommandFailed("no node can be killed without the supervisor: use more nodes")
        lost, before, began_s = _pids(status, _node(away)), _pids(status), time.monotonic()
        self._cluster.kill_node(_node(away))
        while lost & _pids(self._look()) and time.monotonic() - began_s < SETTLE_S:
            time.sleep(OFTEN_S)
        lost_s, began_s = time.monotonic() - began_s, time.monotonic()
        self._cluster.add_nodes([self._workers_each * CORES_PER_PROCESS])
        joined_s = time.monotonic() - began_s
        while len(_pids(status := self._look())) < len(before) and time.monotonic() - began_s < SETTLE_S:
            time.sleep(OFTEN_S)
        return {
            "workers of the node": len(lost),
            "seconds until they counted as lost": lost_s,
            "seconds until the other node had joined": joined_s,
            "seconds until its workers were ready, since its start": time.monotonic() - began_s,
            "workers": len(_pids(status)),
            "other workers that were ended or replaced": len(before - lost - _pids(status)),
        }

    def _want(self, workers: int) -> None:
        self._ask(want=workers * CORES_PER_PROCESS)

    def _look(self, other_than: int = 0) -> Found:
        """Return the status of a supervisor that is another process; wait for one that answers.

        Raises CommandFailed: none answers.
        """
        ends_s = time.monotonic() + SETTLE_S
        while time.monotonic() < ends_s:
            found: Found | None = self._ask()
            if found is not None and found["pid"] != other_than:
                return found
            time.sleep(OFTEN_S)
        raise CommandFailed("no supervisor answers")

    def _ask(self, **order: object) -> Any:
        return ask(self._driver, order, "the driver")


def _ready(status: Found) -> list[Found]:
    return [each for each in status["workers"] if each["state"] == "ready"]


def _pids(status: Found, node: str = "") -> set[int]:
    return {each["pid"] for each in _ready(status) if node in ("", _node(each))}


def _node(worker: Found) -> str:
    return str(worker["worker"].partition("/")[0])


def _shares(stage: Callable[[], object]) -> Found:
    """Run a stage; return the share of a core that each kind of process uses meanwhile."""
    before, began_s = cpu_s_by_kind(), time.monotonic()
    stage()
    took_s, after = time.monotonic() - began_s, cpu_s_by_kind()
    return {f"share of a core: {kind}": (after[kind] - before[kind]) / took_s for kind in after}


def _spread(name: str, values: Sequence[float]) -> Found:
    """Return the median, the 99th percentile and the maximum of some values, if there are any."""
    return {f"{name}, {word}": found for word, found in zip(_WORDS, parts(values), strict=True)} if values else {}


def _memory_mib(status: Found) -> float:
    """Return the median memory of some workers; pages that processes share are divided among them."""
    found = (read_memory(pid) for pid in sorted(_pids(status))[:WEIGHED])
    return statistics.median([each.total_bytes / 2**20 for each in found if each is not None] or [0.0])


def _lower_priority(pids: set[int]) -> None:
    """Let the supervisor and Ray run before the workers, which have cores of their own on a real cluster."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(ProcessLookupError):  # the thread has ended
                os.setpriority(os.PRIO_PROCESS, int(thread.name), LOW_PRIORITY)


def _threads() -> int:
    """Return how many threads this machine runs."""
    return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
