"""Jobs of a queue in PostgreSQL, run by the drivers of a cluster's nodes, when nodes or the head end."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from codecfleet import Queue, QueuedJob, QueueState
from codecfleet.cli.app import run as command_line
from codecfleet.jobs.verify.job import verify
from tests.postgres_server import postgres_server

from .test_killed_programs import gone
from .test_nodes import PROGRAM, SMALL, Machine, machine
from .test_queue import finished, until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root"),
]
HEAD, NODES = "10.9.0.1", ("10.9.0.2", "10.9.0.3")
PORT = 6379
NETWORK = (
    "ip link set lo up",
    "ip link add eth0 type bridge",
    *(f"ip addr add {address}/24 dev eth0" for address in (HEAD, *NODES)),
    "ip link set eth0 up",
    "echo up",
    "exec sleep infinity",
)


@dataclass
class Cluster:
    """A head that does no work and two nodes with drivers, each at an address of its own."""

    here: Machine
    queue: str
    programs: dict[str, psutil.Popen] = field(default_factory=dict)

    def log(self, address: str) -> Path:
        """Return the file with what the programs of a node have printed."""
        return self.here.folder / f"{address}.log"

    async def start(self, address: str) -> None:
        """Start a node, without what an earlier one has left, and wait until it is up."""
        place = ["--head", "--cpus", "0"] if address == HEAD else ["--address", f"{HEAD}:{PORT}", "--cpus", "1"]
        drives = [] if address == HEAD else ["--jobs-at-once", "1", "--queue", self.queue, "--free-disk-gb", "1"]
        folder = self.here.folder / address[-1]
        shutil.rmtree(folder, ignore_errors=True)
        words = ["node", "start", "--block", "--ip", address, *place, *drives, "--temp-dir", str(folder), *SMALL]
        with self.log(address).open("w") as said:
            program = psutil.Popen([*self.here.prefix, *PROGRAM, *words], env=self.here.env, stderr=said)
        self.programs[address] = program
        await until(lambda: "the node is up" in self.log(address).read_text() or not program.is_running(), 120)
        if address != HEAD:
            await until(lambda: "jobs at once" in self.log(address).read_text())

    def runs(self, job: QueuedJob) -> str:
        """Return the address of the node whose driver runs a job."""
        keepers = {each.pid for each in psutil.Process(int(job.driver.rpartition("-")[2])).parents()}
        (address,) = [address for address, program in self.programs.items() if program.pid in keepers]
        return address

    def kill(self, address: str) -> None:
        """Kill a node's program and all that it has started, as if its machine were gone."""
        program = self.programs.pop(address)
        family = program.children(recursive=True)
        for each in [program, *family]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        program.wait()
        assert gone(family)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Yield a cluster whose nodes have not been started, with a queue of its own."""
    command = ["unshare", "--net", "sh", "-e", "-c", "\n".join(NETWORK)]
    with (
        postgres_server() as server,
        machine() as here,
        subprocess.Popen(command, env=here.env, stdout=subprocess.PIPE, text=True) as network,
    ):
        assert network.stdout is not None
        assert network.stdout.readline() == "up\n"
        here.prefix = ("nsenter", "--net", f"--target={network.pid}")
        found = Cluster(here, server.url)
        try:
            yield found
        finally:
            for address in [*found.programs]:
                found.kill(address)
            network.kill()


def arguments(film: Path, output: Path, report: Path) -> list[str]:
    """Return the arguments of a job with five segments."""
    options = ["--segment-seconds", "1", "--preset", "6", "--scale", "960x540", "--report", str(report)]
    return ["transcode", *options, str(film), str(output)]


async def claimed(queue: Queue, output: Path) -> QueuedJob:
    """Wait until some segments of the film are finished, and return its running job."""
    await until(lambda: finished(output) >= 3, 120)
    (job,) = await queue.list([QueueState.RUNNING])
    return job


def check(film: Path, output: Path, report: Path, done: int) -> None:
    """Check that an output is exact, and that only segments in flight, one on each node, were encoded again."""
    resumed = json.loads(report.read_text())["resumed"]
    assert resumed["restored"] >= done >= 3
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
            killed = found.runs(job)
            found.kill(killed)
            done = finished(outputs[0])
            ended = await asyncio.wait_for(queue.wait(job.job_id), 150)
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 1, 0)
            check(film, outputs[0], reports[0], done)

            await found.start(killed)
            job = await queue.submit(arguments(film, outputs[1], reports[1]))
            drained = found.runs(await claimed(queue, outputs[1]))
            program = found.programs.pop(drained)
            program.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(program.wait, 90) == 0
            ended = await asyncio.wait_for(queue.wait(job.job_id), 150)
            assert (ended.state, ended.attempt, ended.losses, ended.failures) == (QueueState.DONE, 2, 0, 0)
            check(film, outputs[1], reports[1], 3)
            assert f"driver: job {job.job_id}: queued\n" in found.log(drained).read_text()


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
