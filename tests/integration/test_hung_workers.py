"""A hung worker delays its job by some seconds and does not change the output."""

import asyncio
import os
import signal
import time
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from codecfleet import Fleet, Report, TranscodeSpec
from codecfleet.cluster.fleet.leases.connecting import ground_on
from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.ray.embedded import Connection
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.jobs.report.events import SegmentFinished, Warned
from codecfleet.testing import FakeClusterBackend, FaultyPool, LocalPool, works
from codecfleet.testing.clips import Clip, constant_times, make_clip

SPEC: dict[str, object] = {"codec": "h264", "preset": 1, "segment_s": Fraction(1), "scale": (None, 48)}


def spec(film: Path, output: Path, **options: object) -> TranscodeSpec:
    """Return a job with segments of one second and small pictures."""
    return TranscodeSpec.model_validate({"source": str(film), "output": str(output), **SPEC, **options})


async def transcode(pool: Pool, asked: TranscodeSpec) -> Report:
    """Run a job on a pool, then close the pool."""
    async with Fleet(pool=pool) as fleet:
        return await (await fleet.transcode(asked))


async def test_a_hung_segment_gives_the_same_bytes(tmp_path: Path) -> None:
    """A segment without progress is encoded again, and the report says so."""
    clip = make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(75), keyframes=frozenset({0, 25, 50})))
    undisturbed = await transcode(LocalPool(2), spec(clip, tmp_path / "one.mp4"))
    hurried = spec(clip, tmp_path / "two.mp4", deadline_s=Fraction(1, 2), deadline_factor=1, second_runs=0)
    report = await transcode(FaultyPool(LocalPool(2), hangs={("segment 1", 1)}), hurried)
    assert report.proof.output_sha256 == undisturbed.proof.output_sha256
    assert "deadline" in [warning.code for warning in report.warnings]


async def test_cancelled_work_that_does_not_end_costs_its_worker() -> None:
    """The worker is replaced, so that its slot can be used although the cancelled work's thread goes on."""
    settings = SupervisorSettings(idle_release_s=None)
    backend = FakeClusterBackend((RayNode(node="here", name="here", cores=1, free_cores=1),))
    shell = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    async with LeasedPool(Ground(supervisor=shell, eager=1).reach, 1, cancel_limit_s=1) as pool:
        (hung,) = backend.workers
        running = pool.submit(works.StandStill(job="j", label="a", seconds=4))
        while not running.progress.frames:  # noqa: ASYNC110 - progress is polled
            await asyncio.sleep(0.01)
        running.cancel()
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert hung not in backend.workers


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_stopped_worker_is_replaced(private_ray: Connection, film: Path, tmp_path: Path) -> None:
    """After a SIGSTOP in the middle of a job the process is killed, and the output has the same bytes as ever."""
    undisturbed = await transcode(LocalPool(2), spec(film, tmp_path / "one.mp4"))
    pool = LeasedPool(ground_on(private_ray, 2).reach, 2)
    async with Fleet(pool=pool) as fleet:
        await pool.start()
        worker = await pool.submit(works.Ask(job="who", label="who"))
        job = await fleet.transcode(spec(film, tmp_path / "two.mp4", deadline_s=Fraction(3), deadline_factor=1))
        said, is_stopped = [], False
        async for event in job.events():
            if isinstance(event, SegmentFinished) and not is_stopped:
                os.kill(worker, signal.SIGSTOP)
                is_stopped = True
            said += [event.code] if isinstance(event, Warned) else []
        report = await job
        assert "deadline" in said
        assert report.proof.output_sha256 == undisturbed.proof.output_sha256
        async with asyncio.timeout(20):
            while psutil.pid_exists(worker):  # noqa: ASYNC110 - other processes send no event
                await asyncio.sleep(0.1)
