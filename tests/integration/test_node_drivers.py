"""Jobs of a queue in PostgreSQL, run by the drivers of a cluster's nodes, when nodes or the head end."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from codecfleet import Queue, QueuedJob, QueueState
from codecfleet.cli.app import run as command_line
from codecfleet.jobs.verify.job import verify
from tests.queue_cluster import HEAD, NODES, PORT, Cluster, cluster

from .test_queue import finished, until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root"),
]


RESTS = "driver: the node drains, so the driver hands back its jobs and rests"


def arguments(film: Path, output: Path, report: Path, preset: str = "6", scale: str = "960x540") -> list[str]:
    """Return the arguments of a job with five segments."""
    options = ["--segment-seconds", "1", "--preset", preset, "--scale", scale, "--report", str(report)]
    return ["transcode", *options, str(film), str(output)]


async def claimed(queue: Queue, output: Path, *, least: int = 3) -> QueuedJob:
    """Wait until some segments of the film are finished, and return its running job."""
    await until(lambda: finished(output) >= least, 120)
    (job,) = await queue.list([QueueState.RUNNING])
    return job


def check(film: Path, output: Path, report: Path, done: int) -> None:
    """Check that an output is exact, and that only segments in flight, one on each node, were encoded again."""
    resumed = json.loads(report.read_text())["resumed"]
    assert resumed["restored"] >= done >= 1
    assert resumed["redone"] <= len(NODES)
    assert verify(film, output, report=report).exact


async def test_jobs_outlive_the_nodes_that_run_them(film: Path, tmp_path: Path) -> None:
    """A job goes on from its journal on another node, after its node was killed, and after its node was drained."""
    with cluster() as found:
        for address in (HEAD, *NODES):
            await found.start(address)
        outputs = [tmp_path / "killed.mp4", tmp_path / "drained.mp4"]
        reports = [tmp_path / "killed.json", tmp_path / "drained.json"]
        async with Queue(found.queue) as queue:
            submit = ["submit", "--queue", found.queue, *arguments(film, outputs[0], reports[0])]
            assert await asyncio.to_thread(command_line, submit) == 0
            job = await claimed(queue, outputs[0])
            killed = found.runs(job)[0]
            found.kill(killed)
            done = finished(outputs[0])
            ended = await asyncio.wait_for(queue.wait(job.job_id), 150)
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 1, 0)
            check(film, outputs[0], reports[0], done)

            await found.start(killed)
            job = await queue.submit(arguments(film, outputs[1], reports[1]))
            drained = found.runs(await claimed(queue, outputs[1]))[0]
            program = found.programs.pop(drained)
            program.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(program.wait, 90) == 0
            ended = await asyncio.wait_for(queue.wait(job.job_id), 150)
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 0, 0)
            check(film, outputs[1], reports[1], 3)
            assert f"driver: job {job.job_id}: queued\n" in found.log(drained).read_text()


async def test_a_drained_node_s_driver_hands_back_and_rests(film: Path, tmp_path: Path) -> None:
    """Another driver goes on with its job and gets the next one, also after ``cordon``, until ``uncordon``."""
    with cluster() as found:
        for address in (HEAD, *NODES):
            await found.start(address)
        nodes = await ray_ids(found)
        outputs, report = [tmp_path / "o.mp4", tmp_path / "again.mp4"], tmp_path / "report.json"
        async with Queue(found.queue) as queue:
            job = await queue.submit(arguments(film, outputs[0], report, "7", "1280x720"))
            drained = found.runs(await claimed(queue, outputs[0], least=1))[0]
            await ordered(found, "drain", nodes[drained])
            ended = await asyncio.wait_for(queue.wait(job.job_id), 400)
            said = found.log(drained).read_text()
            assert RESTS in said
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 0, 0)
            check(film, outputs[0], report, 1)
            assert f"driver: job {job.job_id}: queued\n" in said

            await queue.submit(arguments(film, outputs[1], report))
            assert found.runs(await claimed(queue, outputs[1], least=1))[0] in set(NODES) - {drained}
            await ordered(found, "cordon", nodes[drained])
            await until(lambda: "driver: the node is cordoned" in found.log(drained).read_text(), 60)
            assert found.log(drained).read_text().count("jobs at once") == 1
            await ordered(found, "uncordon", nodes[drained])
            await until(lambda: found.log(drained).read_text().count("jobs at once") == 2, 60)


async def test_a_driver_hands_back_when_ray_drains_its_node(film: Path, tmp_path: Path) -> None:
    """Ray starts nothing on that node any more, so the driver's own job tells it."""
    with cluster() as found:
        for address in (HEAD, *NODES):
            await found.start(address)
        nodes = await ray_ids(found)
        output, report = tmp_path / "o.mp4", tmp_path / "report.json"
        async with Queue(found.queue) as queue:
            job = await queue.submit(arguments(film, output, report, "7", "1280x720"))
            drained = found.runs(await claimed(queue, output, least=1))[0]
            drain = ["ray", "drain-node", "--address", f"{HEAD}:{PORT}", "--node-id", nodes[drained]]
            reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
            command = [*found.here.prefix, *drain, *reason, "--deadline-remaining-seconds", "600"]
            await asyncio.to_thread(
                subprocess.run, command, env=found.here.env | {"RAY_AUTH_MODE": "token"}, check=True
            )
            ended = await asyncio.wait_for(queue.wait(job.job_id), 400)
            said = found.log(drained).read_text()
            assert RESTS in said
            assert f"driver: job {job.job_id}: queued\n" in said
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 0, 0)
            assert found.programs[drained].poll() is None
            check(film, output, report, 1)


async def ray_ids(found: Cluster) -> dict[str, str]:
    """Return the nodes' ids by their addresses."""
    nodes = json.loads(await ordered(found, "node", "list"))["nodes"]
    return {each["ray"]["address"]: each["ray"]["id"] for each in nodes}


async def ordered(found: Cluster, *words: str) -> str:
    """Run a command for the cluster, and return what it prints."""
    done = await asyncio.to_thread(found.here.run, *words, "--address", f"{HEAD}:{PORT}", "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_jobs_outlive_the_head(film: Path, tmp_path: Path) -> None:
    """They return to the queue when their nodes have lost Ray, and go on from their journals with the next head."""
    with cluster() as found:
        for address in (HEAD, *NODES):
            await found.start(address)
        output, report = tmp_path / "o.mp4", tmp_path / "report.json"
        async with Queue(found.queue) as queue:
            job = await queue.submit(arguments(film, output, report))
            await claimed(queue, output)
            found.kill(HEAD)
            for address in NODES:  # as under a service manager, which starts them again
                assert await asyncio.to_thread(found.programs.pop(address).wait, 150) == 5
            done = finished(output)
            job = await queue.get(job.job_id)
            assert (job.state, job.losses, job.failures) == (QueueState.QUEUED, 0, 0)
            assert any("claims no job: no Ray answers" in found.log(address).read_text() for address in NODES)
            for address in (HEAD, *NODES):
                await found.start(address)
            ended = await asyncio.wait_for(queue.wait(job.job_id), 150)
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 0, 0)
            check(film, output, report, done)
