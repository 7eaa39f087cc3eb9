"""Jobs that play a script, and batches of them, without any encoding."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from codecfleet.errors import CodecfleetError
from codecfleet.jobs.batch.batch import Batch
from codecfleet.jobs.batch.results import BatchProgress, BatchResult
from codecfleet.jobs.report.events import Done, Event
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.fleet.fake_fleet import FakeJob, sample_events

_BEGUN = 2
"""How many jobs must have begun for ``Jobs.begun``, usually."""
Fault = Callable[[TranscodeSpec, int], CodecfleetError | None]


class Jobs:
    """Submits jobs that write a byte under the output's name, or fail as ``fault`` says of the n-th try of a file."""

    def __init__(self, fault: Fault = lambda _spec, _n: None, *, hangs: bool = False, begun: int = _BEGUN) -> None:
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
        """The names of the files, in the order in which they began."""
        return [Path(each.source).name for each in self.specs]


def _write(output: str) -> None:
    Path(output).write_bytes(b"x")


def _script(spec: TranscodeSpec) -> list[Event]:
    *events, last = sample_events(segments=1)
    assert isinstance(last, Done)
    report = last.report.model_copy(update={"source": spec.source, "output": spec.output, "output_bytes": 1})
    return [*events, Done("job-1", 1.0, report)]


def run_batch(spec: BatchSpec, jobs: Jobs) -> tuple[list[BatchResult], BatchProgress]:
    """Run a batch to its end."""

    async def main() -> tuple[list[BatchResult], BatchProgress]:
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        results = [result async for result in batch]
        return results, batch.progress

    return asyncio.run(main())


def stop_batch(spec: BatchSpec) -> None:
    """Run a batch until its first job has begun."""

    async def main() -> None:
        jobs = Jobs(hangs=True, begun=1)
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        await batch.cancel()

    asyncio.run(main())
