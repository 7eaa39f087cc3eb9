"""Where a queued job runs: a head, and two nodes with a driver each, beside the queue's database."""

import asyncio
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.queue.places import open_store
from codecfleet.cluster.queue.store import JobStore
from codecfleet.cluster.queue.values import QueueState
from codecfleet.cluster.supervisor.runner.recording import SUFFIX
from tests import queue_cluster
from tests.integration.test_killed_programs import gone
from tests.queue_cluster import HEAD, NODES, PORT, SPOT, SUPERVISOR, left_temporary

from .places import GIVEN_BACK_S, RAY_NOTICES_S, Place, held_slots
from .processes import named, signalled
from .queued_job import LOOK_S, WatchedJob
from .schedule import OF_A_DATABASE, Fault, Shape, Strike

SLOTS: Final = len(NODES)
"""Segments that the nodes encode at the same time, one on each."""
KILLED_S: Final = 2.0
AWAY_S: Final = 5.0
NOTICE_S: Final = 15
BACK_S: Final = 180.0
"""How long a node may take until it is up again; it cannot join before its head is."""
AT_ONCE: Final = 2
"""Jobs that a node's driver runs at the same time."""


@dataclass
class QueuePlace(Place):
    """The cluster and the queue. What is struck comes back at once, as below a service manager."""

    cluster: queue_cluster.Cluster
    store: JobStore
    temporary: Path
    """The nodes' temporary folder."""
    pool: ThreadPoolExecutor
    """Brings back what was struck."""
    repairs: "list[Future[None]]" = field(default_factory=list)
    standing: set[str] = field(default_factory=set)
    """The addresses of head and nodes that are up, and not about to end."""
    killed: int = 0
    """How many times a node was killed."""
    database: threading.Lock = field(default_factory=threading.Lock)
    """Held while the database is away."""
    troubles: list[str] = field(default_factory=list)

    def hit(self, strike: Strike, job: WatchedJob, until_s: float) -> float | None:
        """Carry out a fault; return when it struck on the monotonic clock, or None if there was no victim."""
        now_s = time.monotonic()
        match strike.fault:
            case Fault.DRIVERS_NODE_KILLED | Fault.OWN_DRIVER_KILLED:
                return self._hit_driver(strike.fault, job, until_s)
            case Fault.HEAD_KILLED:
                is_hit = self._kill(HEAD)
            case Fault.SPOT_NOTICE:
                is_hit = self._announce_end()
            case fault if fault in OF_A_DATABASE:
                is_hit = self._hit_database(fault)
            case fault:
                name = "RayWorker" if fault is Fault.WORKER_KILLED else SUPERVISOR
                is_hit = signalled(signal.SIGKILL, named(name, self.cluster.processes()), strike.choice)
        return now_s if is_hit else None

    def _hit_driver(self, fault: Fault, job: WatchedJob, until_s: float) -> float | None:
        """Kill the driver that runs the job, alone or with its node; wait for it if none runs the job now."""
        while not job.is_published and (now_s := time.monotonic()) < until_s:
            address, driver = self.cluster.runs(job.job)
            if driver is not None and job.job.state is QueueState.RUNNING and address in self.standing:
                if fault is Fault.DRIVERS_NODE_KILLED:
                    return now_s if self._kill(address) else None
                return now_s if _killed_with_its_jobs(driver) else None
            time.sleep(LOOK_S)
        return None

    def _kill(self, address: str) -> bool:
        if address not in self.standing:
            return False
        self.standing.remove(address)
        self.cluster.kill(address)
        self.killed += 1
        self._later(self._bring_back, address)
        return True

    def _bring_back(self, address: str) -> None:
        """Start a node, again and again, since it does not join while its head is away."""
        until_s = time.monotonic() + BACK_S
        while address not in self.standing:
            try:
                asyncio.run(self.cluster.start(address))
                self.standing.add(address)
            except AssertionError:
                if time.monotonic() > until_s:
                    raise

    def _announce_end(self) -> bool:
        if SPOT not in self.standing:
            return False
        self.standing.remove(SPOT)
        self.cluster.order_cloud(f"announce {NOTICE_S}")
        self._later(self._end_spot, time.monotonic() + NOTICE_S)
        return True

    def _end_spot(self, at_s: float) -> None:
        """Kill the announced node when its time is over, unless it has ended, and start it again."""
        try:
            code = self.cluster.programs[SPOT].wait(max(0.0, at_s - time.monotonic()))
        except psutil.TimeoutExpired:
            self.cluster.kill(SPOT)
            self.killed += 1
        else:
            del self.cluster.programs[SPOT]
            if code:
                self.troubles.append(f"the node {SPOT} ended with {code} after its notice")
        self.cluster.order_cloud("withdraw")
        self._bring_back(SPOT)

    def _hit_database(self, fault: Fault) -> bool:
        if not self.database.acquire(blocking=False):
            return False
        server = self.cluster.server
        if fault is Fault.DATABASE_KILLED:
            server.kill()
            self._later(self._end_outage, KILLED_S, server.start)
        elif fault is Fault.DATABASE_STOPPED:
            server.stop("fast")
            self._later(self._end_outage, AWAY_S, server.start)
        else:
            frozen = server.processes()
            for each in frozen:
                each.suspend()
            self._later(self._end_outage, AWAY_S, lambda: [each.resume() for each in reversed(frozen)])
        return True

    def _end_outage(self, after_s: float, act: Callable[[], object]) -> None:
        time.sleep(after_s)
        act()
        self.database.release()

    def _later(self, act: Callable[..., None], *arguments: object) -> None:
        self.repairs.append(self.pool.submit(act, *arguments))

    def heal(self) -> None:
        """Wait until all that was struck is back."""
        for each in self.repairs:
            each.result()
        self.repairs.clear()

    def leftovers(self) -> list[str]:
        """Return jobs that are queued or hold slots, nodes that have ended without a fault, and files."""
        troubles, self.troubles = self.troubles, []
        for address in sorted(self.standing):
            if (code := self.cluster.programs[address].poll()) is not None:
                troubles.append(
                    f"{address} ended by itself with {code}: {self.cluster.log(address).read_text()[-500:]}"
                )
        waiting = self.store.jobs([QueueState.QUEUED, QueueState.RUNNING])
        troubles += [f"job {job.job_id} is still {job.state.value} in the queue" for job in waiting]
        troubles += held_slots(self._status, GIVEN_BACK_S + RAY_NOTICES_S)
        return troubles + left_temporary(self.temporary, self.killed + len(self.standing))

    def _status(self) -> dict[str, Any]:
        answered = self._run("--json")
        found: dict[str, Any] = json.loads(answered)["supervisor"]
        return found

    def _run(self, *options: str) -> str:
        answered = self.cluster.here.run("status", "--address", f"{HEAD}:{PORT}", *options)
        assert answered.returncode == 0, answered.stderr
        return answered.stdout

    def kept_events(self, folder: Path) -> list[Path]:
        """Return the recording of the cluster's supervisor, and the files of supervisors that were killed."""
        folder.mkdir(exist_ok=True)
        self._run("--events", str(folder / f"asked{SUFFIX}"))
        for path in Path(self.env[EVENTS]).glob(f"*{SUFFIX}"):
            shutil.copy(path, folder)
        return super().kept_events(folder)

    def logs(self) -> dict[str, bytes]:
        """Return what head and nodes have printed since they were last started, by the names of the files."""
        return {path.name: path.read_bytes() for path in map(self.cluster.log, (HEAD, *NODES)) if path.exists()}


def _killed_with_its_jobs(driver: psutil.Process) -> bool:
    """Kill a driver; its jobs must end with it. Return False if it has just ended by itself."""
    try:
        family = [driver, *driver.children(recursive=True)]
        driver.kill()
    except psutil.NoSuchProcess:
        return False
    assert gone(family), "a job outlives its driver"
    return True


@contextmanager
def queue_place() -> Iterator[QueuePlace]:
    """Yield a place whose head and nodes are up."""
    alone = {"XDG_STATE_HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null"}
    with (
        queue_cluster.cluster(keeps=True, jobs_at_once=AT_ONCE, **alone) as cluster,
        closing(open_store(cluster.queue, makes=True)) as store,
        ThreadPoolExecutor() as pool,
    ):
        temporary, events = (cluster.here.folder / name for name in ("tmp", "events"))
        for folder in (temporary, events):
            folder.mkdir()
        cluster.here.variables |= {"TMPDIR": str(temporary), EVENTS: str(events)}
        place = QueuePlace(Shape.QUEUE, cluster.here.env, cluster, store, temporary, pool)
        asyncio.run(cluster.start(HEAD))
        place.standing.add(HEAD)
        for ready in [pool.submit(place._bring_back, address) for address in NODES]:
            ready.result()
        yield place
