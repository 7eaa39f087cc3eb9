"""A cluster's job server in memory, whose jobs follow the script of a test."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...cluster.submission.entry import MARK, Entry
from ...cluster.submission.job_server import JobPhase, JobServer, RayJob
from ...errors import FleetUnavailable, UsageError


@dataclass
class FakeJobServer(JobServer):
    """Replaces the job server of a cluster."""

    log_pieces: Sequence[str] = ()  # the pieces of output that each job prints
    end: RayJob = field(default_factory=lambda: RayJob("", JobPhase.SUCCEEDED, exit_code=0))  # how each job ends
    pending: int = 0  # how many queries about a job are answered with "pending"
    breaks_after: Sequence[int] = ()  # the first reads of a log fail, each after this many pieces
    refusals: int = 0  # how many queries about accepted jobs fail
    address: str = "http://head:8265"
    submitted: dict[str, Entry] = field(default_factory=dict)  # the accepted jobs by name
    packages: list[set[str]] = field(default_factory=list)  # the files of each submitted package
    stopped: list[str] = field(default_factory=list)  # the names of jobs that were stopped
    _read: set[str] = field(default_factory=set)
    _times_read: int = 0

    def submit(self, job_id: str, entry: Entry, package: Path | None) -> None:
        self.submitted[job_id] = entry
        self.packages.append(set() if package is None else {str(p.relative_to(package)) for p in package.rglob("*")})

    def job(self, job_id: str) -> RayJob:
        """Return the job: first pending, then running until its log has been read, then ended."""
        self._answer()
        found = RayJob(job_id, JobPhase.RUNNING, command=self._entry(job_id).metadata[MARK])
        if job_id in self._read:
            return replace(self.end, job_id=job_id, command=found.command)
        if self.pending:
            self.pending -= 1
            return replace(found, phase=JobPhase.PENDING)
        return found

    def jobs(self) -> list[RayJob]:
        return [self.job(job_id) for job_id in self.submitted]

    def stop(self, job_id: str) -> bool:
        self._entry(job_id)
        self.stopped.append(job_id)
        return job_id not in self._read

    def printed(self, job_id: str) -> str:
        self._entry(job_id)
        return "".join(self.log_pieces)

    async def log(self, job_id: str) -> AsyncIterator[str]:
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
