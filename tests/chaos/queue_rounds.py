"""One round of a queued job: its faults, and whether it ended as promised."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codecfleet import Queue, QueueState
from codecfleet.errors import QueueUnavailable
from tests.queue_progress import given_up, redone

from .films import Film, sha256
from .places import Place
from .processes import MARK
from .queue_place import SLOTS, QueuePlace
from .queued_job import WatchedJob
from .rounds import ROUND_S, Attack, Result
from .schedule import OF_A_DATABASE, Fault, Round, Strike


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that was carried out."""

    fault: Fault
    at_s: float
    done: int
    """Segments that were finished when it had been carried out."""


def _in_flight(fault: Fault) -> int:
    """Return how many segments a fault may interrupt: those of the killed worker, or of all workers, or none."""
    if fault in OF_A_DATABASE:
        return 0
    return 1 if fault is Fault.WORKER_KILLED else SLOTS


class QueuedAttack(Attack):
    """Runs one round in a cluster with a queue. Use it once."""

    _place: QueuePlace

    def __init__(self, plan: Round, place: Place, film: Film, folder: Path) -> None:
        super().__init__(plan, place, film, folder)
        self._hits: list[Hit] = []
        self._jobs: list[WatchedJob] = []

    @property
    def _job(self) -> WatchedJob:
        """The job at which the faults are aimed."""
        return self._jobs[-1]

    def run(self) -> Result:
        try:
            return super().run()
        finally:
            for job in self._jobs:
                job.close()

    def _play(self) -> None:
        for name in ("beside", "out")[not self.result.round.beside :]:
            self._jobs.append(self._submit(name))
        for strike in self.result.round.strikes:
            self._hit(strike)
        for job in self._jobs:
            self._ends_well(job)
        self._place.heal()

    def _submit(self, name: str) -> WatchedJob:
        output = self._folder / "out" / f"{name}.mp4"
        variables = {MARK: self._mark, "TMPDIR": str(self._folder / "tmp")}
        arguments = ["transcode", str(self._film.path), str(output), *self._film.options]

        async def submit() -> WatchedJob:
            async with Queue(self._place.cluster.queue) as queue:
                job_id = f"{name}-{self._mark}"
                job = await queue.submit(arguments, job_id=job_id, folder=self._folder, variables=variables)
            return WatchedJob(self._place.store, output, job)

        return asyncio.run(submit()).watch()

    def _hit(self, strike: Strike) -> None:
        if self._job.wait_for_segments(strike.after_segments, self._until_s):
            time.sleep(strike.delay_s)
            if (at_s := self._place.hit(strike, self._job, self._until_s)) is not None:
                self._hits.append(Hit(strike.fault, at_s, self._job.read()))

    def _ends_well(self, watched: WatchedJob) -> None:
        job = watched.wait(self._until_s)
        if not job.state.is_over:
            self._problem(f"{job.job_id} was not over within {ROUND_S:.0f} s: {job.to_json()}")
        elif job.state is not QueueState.DONE or job.failures:
            self._problem(f"{job.job_id} is {job.state.value}, {job.failures} failures: {job.error}: {job.message}")
        elif sha256(watched.output) != self._film.expected_sha256:
            self._problem(f"{job.job_id} has other bytes")

    def _printed(self, watched: WatchedJob) -> str:
        return self._place.store.output(watched.job.job_id).text

    def _count(self) -> None:
        printed = self._printed(self._job)
        self.result.recoveries_s = [(hit.fault.value, self._recovery_s(n)) for n, hit in enumerate(self._hits)]
        self.result.redone = redone(printed)
        self.result.allowed = given_up(printed) * SLOTS + sum(_in_flight(hit.fault) for hit in self._hits)
        if self.result.redone > self.result.allowed:
            self._problem(f"{self.result.redone} segments ran again, {self.result.allowed} were in flight")

    def _recovery_s(self, number: int) -> float | None:
        """Return how long after a fault the next segment was finished; None if another fault may have a part in it."""
        hit = self._hits[number]
        if (back_s := self._job.next_s(hit.done)) is None:
            return None
        earlier = (self._job.next_s(other.done) for other in self._hits[:number])
        later = (other.at_s for other in self._hits[number + 1 :])
        if any(at_s is None or at_s > hit.at_s for at_s in earlier) or any(at_s <= back_s for at_s in later):
            return None
        return round(back_s - hit.at_s, 3)

    def _is_ours(self, process: int) -> bool:
        del process
        return True

    def _keep_evidence(self) -> None:
        super()._keep_evidence()
        with suppress(QueueUnavailable):
            for job in self._jobs:
                self.result.recorded[f"{job.output.stem}.log"] = self._printed(job).encode()
        self.result.recorded |= self._place.logs()


def attack_of(plan: Round, place: Place, film: Film, folder: Path) -> Attack:
    """Return what runs a round in a place."""
    kind = QueuedAttack if isinstance(place, QueuePlace) else Attack
    return kind(plan, place, film, folder)
