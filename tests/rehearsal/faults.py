"""The faults of a rehearsal, one after the other, each in the middle of a job; and what each has cost."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import psutil

from codecfleet import QueuedJob
from tests.integration.test_queue import until
from tests.queue_cluster import HEAD, NODES, SPOT, Cluster

from .watch import Watch

DOWN_S: Final = 3.0
NOTICE_S: Final = 30
FOUND_S: Final = 600.0
"""How long it may take until a job is in its middle."""
ENDED_S: Final = 120.0
"""How long a node that is to end may take."""


class Fault(StrEnum):
    """A fault."""

    NODE_KILLED = "a node SIGKILL, with a job's driver"
    SUPERVISOR_KILLED = "supervisor SIGKILL"
    HEAD_KILLED = "head SIGKILL, started again"
    DATABASE_STOPPED = "PostgreSQL stopped at once, started again after 3 s"
    SPOT_NOTICE = "spot notice of 30 s to a node"
    NODE_DRAINED = "a node SIGTERM"


_OF_A_NODE: Final = {Fault.NODE_KILLED: NODES, Fault.SPOT_NOTICE: (SPOT,), Fault.NODE_DRAINED: NODES}
"""The nodes that a fault may strike: one that runs the driver of a job in its middle."""


@dataclass
class Struck:
    """A fault that was carried out; times are those of the watch."""

    fault: Fault
    victims: list[QueuedJob]
    redone_allowed: int  #: segments that may run again
    at_s: float = 0.0
    back_s: float = 0.0  #: when what had failed was there again
    redone_before: int = 0
    redone: int = 0
    first_s: float | None = None  #: after this long one of the victims got another segment, or was done
    all_s: float | None = None  #: after this long each of them had

    def to_json(self) -> dict[str, Any]:
        return {
            "fault": self.fault.value,
            "at_s": round(self.at_s, 1),
            "victims": len(self.victims),
            "back_after_s": round(self.back_s - self.at_s, 1),
            "first_progress_after_s": self.first_s,
            "all_progress_after_s": self.all_s,
            "redone": self.redone,
            "redone_allowed": self.redone_allowed,
        }


@dataclass
class Faults:
    """Carries out each fault once, spread over the jobs."""

    cluster: Cluster
    watch: Watch
    say: Callable[[str], object]
    struck: list[Struck] = field(default_factory=list)
    missed: list[Fault] = field(default_factory=list)  #: those for which all jobs were over too soon

    async def run(self, jobs: int) -> None:
        """Carry them out while ``jobs`` end, the next one when what had failed is there again."""
        for number, fault in enumerate(Fault):
            after = number * jobs * 3 // (4 * len(Fault))
            await until(lambda after=after: self.watch.over >= after, 3600)  # type: ignore[misc]
            redone = await self.watch.redone()
            if not (victims := await self._victims(fault)):
                self.missed.append(fault)
                continue
            struck = Struck(fault, victims, self.cluster.slots, at_s=self.watch.now_s, redone_before=redone)
            self.struck.append(struck)
            await self._strike(fault, victims[0])
            struck.back_s = self.watch.now_s
            self.say(f"{struck.at_s:6.0f} s: {fault}; there again at {struck.back_s:.0f} s")

    async def _victims(self, fault: Fault) -> list[QueuedJob]:
        """Wait for a job in its middle, on a node that can be struck; return it with all that the fault strikes.

        Return none if all jobs are over.
        """
        nodes, until_s = _OF_A_NODE.get(fault), self.watch.now_s + FOUND_S
        while self.watch.now_s < until_s:
            for job in self.watch.in_the_middle():
                if nodes is None:
                    return [job, *(other for other in self.watch.begun() if other.job_id != job.job_id)]
                if self.cluster.runs(job)[0] in nodes:
                    return [job]
            if self.watch.over == len(self.watch.jobs):
                return []
            await asyncio.sleep(0.05)
        raise AssertionError(f"{fault}: no job was in its middle within {FOUND_S:.0f} s: give longer films")

    async def _strike(self, fault: Fault, victim: QueuedJob) -> None:
        cluster, server = self.cluster, self.cluster.server
        match fault:
            case Fault.NODE_KILLED:
                node, _ = cluster.runs(victim)
                cluster.kill(node)
                await cluster.start(node)
            case Fault.SUPERVISOR_KILLED:
                cluster.kill_supervisor()
            case Fault.HEAD_KILLED:
                cluster.kill(HEAD)
                await cluster.start(HEAD)
            case Fault.DATABASE_STOPPED:
                await asyncio.to_thread(server.stop)
                await asyncio.sleep(DOWN_S)
                await asyncio.to_thread(server.start)
            case Fault.SPOT_NOTICE:
                cluster.order_cloud(f"announce {NOTICE_S}")
                await self._end(SPOT, cluster.programs.pop(SPOT))
                cluster.order_cloud("withdraw")
                await cluster.start(SPOT)
            case Fault.NODE_DRAINED:
                node, _ = cluster.runs(victim)
                await self._end(node, cluster.terminate(node))
                await cluster.start(node)

    async def _end(self, node: str, program: psutil.Popen) -> None:
        code = await asyncio.to_thread(program.wait, ENDED_S)
        assert code == 0, (node, code, self.cluster.log(node).read_text())

    async def count(self) -> None:
        """Note what each fault has cost, once all jobs are over."""
        counts = [each.redone_before for each in self.struck[1:]] + [await self.watch.redone()]
        for struck, redone in zip(self.struck, counts, strict=True):
            struck.redone = redone - struck.redone_before
            moved = [self._went_on_s(struck, job) for job in struck.victims]
            times = [round(at_s - struck.at_s, 1) for at_s in moved if at_s is not None]
            struck.first_s = min(times, default=None)
            struck.all_s = max(times) if len(times) == len(moved) else None

    def _went_on_s(self, struck: Struck, job: QueuedJob) -> float | None:
        """Return when a victim made progress: if its driver was struck, then below another driver."""
        again_s = self.watch.claims.get((job.job_id, job.attempt + 1))
        is_over = any(each.state.is_over for each in self.watch.jobs if each.job_id == job.job_id)
        if again_s is None and struck.fault in _OF_A_NODE and not is_over:
            return None
        return self.watch.moved_s(job, max(struck.at_s, again_s or 0.0))
