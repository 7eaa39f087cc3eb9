"""A cluster's job server in memory, whose jobs go as a test has written down."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...cluster.submission.entry import MARK, Entry
from ...cluster.submission.job_server import JobPhase, JobServer, RayJob
from ...errors import FleetUnavailable, UsageError


@dataclass
class FakeJobServer(JobServer):
    """Stands in for a cluster's job server.

    Args:
        log_pieces: what each job prints, a piece at a time.
        end: how each job ends.
        pending: how often a job is pending when asked for.
        breaks_after: for each time that a log is read in turn, after how many pieces it breaks off; then it does not.
        refusals: how often the server does not answer, once it has taken a job.
    """

    log_pieces: Sequence[str] = ()
    end: RayJob = field(default_factory=lambda: RayJob("", JobPhase.SUCCEEDED, exit_code=0))
    pending: int = 0
    breaks_after: Sequence[int] = ()
    refusals: int = 0
    address: str = "http://head:8265"
    submitted: dict[str, Entry] = field(default_factory=dict)
    packages: list[set[str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    _read: set[str] = field(default_factory=set)
    _times_read: int = 0

    def submit(self, job_id: str, entry: Entry, package: Path | None) -> None:
        """Take the job."""
        self.submitted[job_id] = entry
        self.packages.append(set() if package is None else {str(p.relative_to(package)) for p in package.rglob("*")})

    def job(self, job_id: str) -> RayJob:
        """Return it: pending, running until its log was read, and then at its end."""
        self._answer()
        found = RayJob(job_id, JobPhase.RUNNING, command=self._entry(job_id).metadata[MARK])
        if job_id in self._read:
            return replace(self.end, job_id=job_id, command=found.command)
        if self.pending:
            self.pending -= 1
            return replace(found, phase=JobPhase.PENDING)
        return found

    def jobs(self) -> list[RayJob]:
        """Return all."""
        return [self.job(job_id) for job_id in self.submitted]

    def stop(self, job_id: str) -> bool:
        """Note it."""
        self._entry(job_id)
        self.stopped.append(job_id)
        return job_id not in self._read

    def printed(self, job_id: str) -> str:
        """Return all of it."""
        self._entry(job_id)
        return "".join(self.log_pieces)

    async def log(self, job_id: str) -> AsyncIterator[str]:
        """Yield its pieces."""
        number, self._times_read = self._times_read, self._times_read + 1
        pieces = self.log_pieces
        breaks = number < len(self.breaks_after)
        for piece in pieces[: self.breaks_after[number]] if breaks else pieces:
            yield piece
        if breaks:
            raise FleetUnavailable("the log broke off", "Follow it again.")
        self._read.add(job_id)

    def _entry(self, job_id: str) -> Entry:
        if job_id not in self.submitted:
            raise UsageError(f"{self.address} has no job {job_id}")
        return self.submitted[job_id]

    def _answer(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise FleetUnavailable("the job server does not answer", "Check its address.")
