"""Whether a rehearsal has ended as promised."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from codecfleet import Queue, QueuedJob
from codecfleet.cluster.queue.tenants import Prices
from codecfleet.cluster.queue.values import Usage
from tests.queue_cluster import NODES, left_temporary

from .faults import Fault, Struck
from .watch import Watch
from .work import SHARES, Wanted, sha256

PRICES: Final = Prices(core_hour=3.6, written_gib=1000.0)
POLICY: Final = "\n".join(
    [
        "window_s = 86400",
        *(f"[tenants.{tenant}]\nshare = {share}" for tenant, share in SHARES.items()),
        f"[prices]\ncore_hour = {PRICES.core_hour}\nwritten_gib = {PRICES.written_gib}",
    ]
)
"""The policy of the queue, as TOML."""


def wrong_ends(wanted: Sequence[Wanted], jobs: Sequence[QueuedJob]) -> Iterator[str]:
    """Yield what is wrong with how jobs ended: lost ones, other states or errors, other bytes."""
    found = {job.job_id: job for job in jobs}
    if strange := found.keys() - {each.job_id for each in wanted}:
        yield f"jobs that nobody submitted: {strange}"
    for each in wanted:
        if (job := found.get(each.job_id)) is None:
            yield f"{each.job_id} is lost"
            continue
        if (job.state, job.error if each.error else "") != (each.state, each.error):
            yield f"{each.job_id} is {job.state.value}, {job.error}: {job.message}; not {each.state.value} {each.error}"
        for output, expected in each.outputs:
            if sha256(output) != expected:
                yield f"{each.job_id}: {output.name} has other bytes, or is missing"


def wrong_costs(struck: Sequence[Struck], missed: Sequence[Fault]) -> Iterator[str]:
    """Yield which fault has cost too much or was missed, or after which one a job stood still."""
    for fault in missed:
        yield f"{fault}: no job was in its middle: give more jobs, or longer films"
    for each in struck:
        if each.redone > each.redone_allowed:
            yield f"{each.fault}: {each.redone} segments ran again, {each.redone_allowed} at most were in flight"
        if each.all_s is None:
            yield f"{each.fault}: a job made no progress afterwards"


def left_files(folder: Path, wanted: Sequence[Wanted], temporary: Path, killed: int) -> Iterator[str]:
    """Yield the files that are no output below the folder of the outputs, and those that ``left_temporary`` finds."""
    known = {output for each in wanted for output, _ in each.outputs}
    known |= {path for output in known for path in (output.parent, output.with_name("codecfleet-batch.sqlite"))}
    for path in sorted(folder.rglob("*")):
        if path not in known:
            yield f"left beside the outputs: {path.relative_to(folder)}"
    yield from left_temporary(temporary, killed)


class Tenants:
    """What each tenant got and has to pay."""

    def __init__(self, watch: Watch, wanted: Sequence[Wanted], jobs_at_once: int) -> None:
        self._watch = watch
        self._jobs_at_once = jobs_at_once * len(NODES)
        self._wanted = {each.job_id: each for each in wanted}
        self.problems: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.fairness: dict[str, Any] = {}

    async def look(self, queue: Queue) -> None:
        """Compare the bill with the jobs, and what the tenants used with their shares."""
        by_job = await queue.usage(by_job=True)
        for row in await queue.usage():
            own = [job for job in self._watch.jobs if job.tenant == row.tenant]
            states = Counter(job.state.value for job in own)
            figures = {"run_s": round(row.run_s, 1), "core_s": round(row.core_s, 1), "cost": round(row.cost, 4)}
            self.rows.append({"tenant": row.tenant, **states, "attempts": row.attempts, **figures})
            written = sum(self._size(job) for job in own)
            bills = {
                "its jobs": sum(job.cost for job in own),
                "its attempts": sum(each.cost for each in by_job if each.tenant == row.tenant),
                "the prices": PRICES.cost(Usage(row.core_s, row.gpu_s, row.written_bytes)),
            }
            for of, cost in bills.items():
                if not math.isclose(cost, row.cost, rel_tol=1e-6):
                    self.problems.append(f"{row.tenant} pays {row.cost}, but by {of} it is {cost}")
            if row.written_bytes != written:
                self.problems.append(f"{row.tenant} pays for {row.written_bytes} bytes, and has {written}")
        self._look_at_shares(max((each.run_s for each in by_job), default=0.0))

    def _size(self, job: QueuedJob) -> int:
        return sum(output.stat().st_size for output, _ in self._wanted[job.job_id].outputs if output.exists())

    def _look_at_shares(self, longest_s: float) -> None:
        """Compare the tenants' use at the last moment when both had jobs queued.

        A driver takes the tenant that is behind. So the use by share differs by what the last job of each slot took.
        """
        until_s, used_s = self._watch.fair
        by_share = [used_s.get(tenant, 0.0) / share for tenant, share in SHARES.items()]
        bound_s = longest_s * self._jobs_at_once
        ratio = used_s.get("films", 0.0) / max(used_s.get("news", 0.0), 0.001)
        self.fairness = {
            "until_s": round(until_s, 1),
            "used_s": {tenant: round(value, 1) for tenant, value in used_s.items()},
            "ratio": round(ratio, 3),
            "difference_by_share_s": round(max(by_share) - min(by_share), 1),
            "allowed_s": round(bound_s, 1),
        }
        if not used_s:
            self.problems.append("there was no moment when both tenants had jobs queued")
        elif max(by_share) - min(by_share) > bound_s:
            self.problems.append(f"the shares were not kept: {self.fairness}")
