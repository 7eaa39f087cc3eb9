"""A worker that stands still costs its job some seconds, and no byte."""

import asyncio
import os
import signal
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from codecfleet import Fleet, Report, TranscodeSpec
from codecfleet.cluster.client.connected_pool import leased_pool
from codecfleet.cluster.client.pool import Pool
from codecfleet.cluster.ray.embedded import Connection
from codecfleet.jobs.report.events import Progress, Warned
from codecfleet.testing import FaultyPool, LocalPool, works
from codecfleet.testing.clips import Clip, constant_times, make_clip

SPEC: dict[str, object] = {"codec": "h264", "preset": 1, "segment_s": Fraction(1), "scale": (None, 48)}


def spec(film: Path, output: Path, **options: object) -> TranscodeSpec:
    """Return a job of segments of a second, of small pictures."""
    return TranscodeSpec.model_validate({"source": str(film), "output": str(output), **SPEC, **options})


async def transcode(pool: Pool, asked: TranscodeSpec) -> Report:
    """Run a job on a pool, which is closed."""
    async with Fleet(pool=pool) as fleet:
        return await (await fleet.transcode(asked))


async def test_a_hung_segment_gives_the_same_bytes(tmp_path: Path) -> None:
    """What makes no progress is done again, and the report says so."""
    clip = make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(75), keyframes=frozenset({0, 25, 50})))
    undisturbed = await transcode(LocalPool(2), spec(clip, tmp_path / "one.mp4"))
    hurried = spec(clip, tmp_path / "two.mp4", deadline_s=Fraction(1, 2), deadline_factor=1, second_runs=0)
    report = await transcode(FaultyPool(LocalPool(2), hangs={("segment 1", 1)}), hurried)
    assert report.proof.output_sha256 == undisturbed.proof.output_sha256
    assert "deadline" in [warning.code for warning in report.warnings]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_stopped_worker_is_replaced(private_ray: Connection, film: Path, tmp_path: Path) -> None:
    """SIGSTOP in the middle of a job: its process dies, the job ends well, with the bytes of an undisturbed one."""
    undisturbed = await transcode(LocalPool(2), spec(film, tmp_path / "one.mp4"))
    pool = leased_pool(private_ray, 2)
    async with Fleet(pool=pool) as fleet:
        await pool.start()
        worker = await pool.submit(works.Ask(job="who", label="who"))
        job = await fleet.transcode(spec(film, tmp_path / "two.mp4", deadline_s=Fraction(3), deadline_factor=1))
        said = []
        async for event in job.events():
            if isinstance(event, Progress) and 40 < event.frames_done < 150:
                with suppress(ProcessLookupError):  # it was stopped before, and is replaced
                    os.kill(worker, signal.SIGSTOP)
            said += [event.code] if isinstance(event, Warned) else []
        report = await job
        assert "deadline" in said
        assert report.proof.output_sha256 == undisturbed.proof.output_sha256
        async with asyncio.timeout(20):
            while psutil.pid_exists(worker):  # noqa: ASYNC110 - other processes send no event
                await asyncio.sleep(0.1)
