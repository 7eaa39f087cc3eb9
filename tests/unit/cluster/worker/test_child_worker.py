"""A worker that is a child process, and how its end is reported."""

import asyncio
import socket

import pytest

from codecfleet.actors.device.work import UNCONSTRAINED
from codecfleet.actors.process.child import ChildDied
from codecfleet.actors.process.process import StartedProcess
from codecfleet.actors.worker.packed_work import BlobCache
from codecfleet.cluster.worker.child_worker import ChildWorker
from codecfleet.testing import FakeProcesses, works


async def test_what_a_dead_worker_was_asked_says_how_it_died() -> None:
    """Pending calls, and calls after the worker's death, are refused with the cause."""
    processes = FakeProcesses()
    worker = ChildWorker(processes())
    assert (await worker.begin(2, 4)).slots == 2
    packed, _ = BlobCache(bytes).pack(works.Dwell(job="j", label="a", seconds=3600))
    running = asyncio.create_task(worker.run("c:1", packed, UNCONSTRAINED))
    while not (await worker.heartbeat()).progress:  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0.01)
    processes.kill()
    assert await worker.death() == "it was killed by SIGKILL"
    for call in (running, worker.heartbeat()):
        with pytest.raises(ChildDied, match="it was killed by SIGKILL"):
            await call


async def test_a_worker_that_cannot_be_understood_is_killed() -> None:
    """If a worker's message cannot be read, the worker is killed and reaped, and its reported end says why."""
    ours, theirs = socket.socketpair()
    kills, reaped = [], []
    process = StartedProcess(ours, lambda: kills.append("killed"), lambda: reaped.append("reaped") or "it was killed")
    worker = ChildWorker(process)
    with theirs:
        theirs.sendall(b"\0\0\0\1\xc1")
        assert (await worker.death()).startswith("its message cannot be read: ")
    with pytest.raises(ChildDied, match="cannot be read"):
        await worker.begin(1, 1)
    assert (kills, reaped) == (["killed"], ["reaped"])
