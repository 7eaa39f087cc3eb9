"""A batch whose jobs only write one byte, to measure the batch itself. ``benchmarks/batch.py`` runs it.

``python batch_child.py LIST OUTPUT [RESULTS]`` prints JSON lines: ``first`` after the first file, ``end`` at the end.
After RESULTS files the program kills itself, as ``kill -9`` does.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from codecfleet import BatchSpec, TranscodeSpec
from codecfleet.jobs.batch.batch import Batch
from codecfleet.jobs.report.events import Done
from codecfleet.testing import LocalPool
from codecfleet.testing.fleet.fake_fleet import FakeJob, sample_report

_REPORT = sample_report(segments=1).model_copy(update={"output_bytes": 1, "warnings": ()})


async def submit(spec: TranscodeSpec) -> FakeJob:
    """Start a job that is already done."""
    _write(spec.output)
    return FakeJob([Done("job", 0.0, _REPORT)], None, hangs=False)


def _write(output: str) -> None:
    Path(output).write_bytes(b"x")


def peak_mib() -> float:
    """Return this process's peak resident memory (proc(5), VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def main(listed: str, output: str, killed_after: int | None) -> None:
    """Run the batch."""
    began_s, ended = time.monotonic(), 0
    batch = Batch(BatchSpec(inputs=listed, output=output).resolved(), submit, LocalPool(2))
    async for _ in batch:
        ended += 1
        if ended == 1:
            _say("first", began_s, batch, ended)
        if ended == killed_after:
            _say("killed", began_s, batch, ended)
            os.kill(os.getpid(), signal.SIGKILL)
    _say("end", began_s, batch, ended)


def _say(what: str, began_s: float, batch: Batch, ended: int) -> None:
    facts = {"what": what, "wall_s": time.monotonic() - began_s, "peak_mib": peak_mib(), "ended": ended}
    print(json.dumps(facts | {"done": batch.progress.done, "skipped": batch.progress.skipped}), flush=True)


if __name__ == "__main__":
    _, list_, output_, *after = sys.argv
    asyncio.run(main(list_, output_, int(after[0]) if after else None))
