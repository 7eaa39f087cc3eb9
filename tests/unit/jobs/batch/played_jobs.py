"""Scripted jobs that encode nothing, and batches of such jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from codecfleet.errors import CodecfleetError
from codecfleet.jobs.batch.batch import Batch
from codecfleet.jobs.batch.results import BatchProgress, BatchResult
from codecfleet.jobs.report.events import Done, Event
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.fleet.fake_fleet import FakeJob, sample_events

Fault = Callable[[TranscodeSpec, int], CodecfleetError | None]


class Jobs:
    """Submits jobs that write a byte as the output, or fail as ``fault`` says for the n-th try of a file."""

    def __init__(self, fault: Fault = lambda _spec, _n: None, *, hangs: bool = False, begun: int = 1) -> None:
        self.specs: list[TranscodeSpec] = []
        self.jobs: list[FakeJob] = []
        self._fault = fault
        self._hangs = hangs
        self._begun = begun
        self.begun = asyncio.Event()

    async def submit(self, spec: TranscodeSpec) -> FakeJob:
        """Start one."""
        self.specs.append(spec)
        error = self._fault(spec, sum(each.source == spec.source for each in self.specs))
        if error is None and not self._hangs:
            _write(spec.output)
        job = FakeJob(_script(spec), error, hangs=self._hangs)
        self.jobs.append(job)
        if len(self.jobs) == self._begun:
            self.begun.set()
        return job

    @property
    def sources(self) -> list[str]:
        """The names of the files in the order in which their jobs began."""
        return [Path(each.source).name for each in self.specs]


def _write(output: str) -> None:
    Path(output).write_bytes(b"x")


def _script(spec: TranscodeSpec) -> list[Event]:
    *events, last = sample_events(segments=1)
    assert isinstance(last, Done)
    report = last.report.model_copy(update={"source": spec.source, "output": spec.output, "output_bytes": 1})
    return [*events, Done("job-1", 1.0, report)]


def run_batch(spec: BatchSpec, jobs: Jobs, pool: LocalPool | None = None) -> tuple[list[BatchResult], BatchProgress]:
    """Run a batch to its end."""

    async def main() -> tuple[list[BatchResult], BatchProgress]:
        batch = Batch(spec.resolved(), jobs.submit, pool or LocalPool(2))
        results = [result async for result in batch]
        return results, batch.progress

    return asyncio.run(main())


async def _nothing() -> None:
    pass


def stop_batch(
    spec: BatchSpec, *, begun: int = 1, meanwhile: Callable[[], Awaitable[None]] = _nothing
) -> tuple[Jobs, Batch]:
    """Run a batch until this many of its jobs have begun, do something, and cancel the batch."""

    async def main() -> tuple[Jobs, Batch]:
        jobs = Jobs(hangs=True, begun=begun)
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(8))
        await jobs.begun.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        await meanwhile()
        await batch.cancel()
        return jobs, batch

    return asyncio.run(main())


def results_of(batch: Batch) -> list[BatchResult]:
    """Take the results of a batch that has ended."""

    async def main() -> list[BatchResult]:
        return [result async for result in batch]

    return asyncio.run(main())
