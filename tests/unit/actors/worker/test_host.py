"""A worker's host: the supervisor that it obeys, the work that it cancels, and how it ends itself."""

import asyncio
import subprocess
import sys

import pytest

from codecfleet.actors.device.work import UNCONSTRAINED, Constraints
from codecfleet.actors.worker.host import FENCED_CODE
from codecfleet.actors.worker.orders import GoneClients, OldTerm
from codecfleet.errors import Cancelled
from codecfleet.testing import works
from codecfleet.testing.fleet.fake_worker import host_in_process

from .helper_peers import Threaded, packed

PROGRAM = """
import asyncio
from codecfleet.actors.device.work import UNCONSTRAINED, Work
from codecfleet.actors.worker import host
from codecfleet.actors.worker.packed_work import BlobCache
from codecfleet.errors import DeviceLost
from codecfleet.testing.fleet.fake_worker import host_in_process

class Breaks(Work):
    def run(self, context):
        raise DeviceLost("it is broken")

async def main():
    worker = host_in_process(2)
    outcome = await worker.run("run", BlobCache(bytes).pack(Breaks(job="j", label="a"))[0], UNCONSTRAINED)
    print(type(outcome.error).__name__, flush=True)
    {then}

host.ANSWER_S = {answer_s}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("then", "answer_s", "code"),
    [
        pytest.param("", 60, 0, id="it waits for word"),
        pytest.param("worker.end()", 60, FENCED_CODE, id="it got word"),
        pytest.param("await host.never()", 0.01, FENCED_CODE, id="no word came in time"),
    ],
)
def test_it_ends_once_its_answer_has_arrived(then: str, answer_s: float, code: int) -> None:
    """If a process died before its answer arrives, the work that broke it would be submitted again."""
    program = PROGRAM.format(then=then, answer_s=answer_s)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("DeviceLost\n", code), done.stderr


@pytest.mark.parametrize("alone", [False, True])
async def test_work_of_clients_that_are_gone_is_cancelled(*, alone: bool) -> None:
    """Work is cancelled whether it runs or waits for a thread or a process; other clients' work continues."""
    host = host_in_process(2)
    dwell = packed(works.Dwell(job="j", label="a", seconds=3600))
    tasks = {
        client: [
            asyncio.create_task(host.run(f"{client}:{number}", dwell, Constraints(alone=alone))) for number in range(4)
        ]
        for client in ("me", "you", "they")
    }
    await asyncio.sleep(0)
    host.cancel(GoneClients(frozenset(["me"])))
    assert [type(outcome.error) for outcome in await asyncio.gather(*tasks["me"])] == [Cancelled] * 4
    host.cancel(GoneClients(frozenset(["you"]), are_left=True))
    assert not any(task.done() for task in tasks["you"])
    for number in range(4):
        host.cancel(f"you:{number}")
    assert [type(outcome.error) for outcome in await asyncio.gather(*tasks["they"], *tasks["you"])] == [Cancelled] * 8


async def test_the_newest_supervisor_is_obeyed() -> None:
    """An older supervisor gets an error and cancels nothing; a client's heartbeat is not an order."""
    host = host_in_process(1)
    running = asyncio.create_task(
        host.run("me:1", packed(works.Dwell(job="j", label="a", seconds=3600)), UNCONSTRAINED)
    )
    await host.heartbeat(7)
    with pytest.raises(OldTerm):
        await host.heartbeat(6)
    host.cancel(GoneClients(frozenset(["me"]), term=6))
    assert (await host.heartbeat()).progress.keys() <= {"me:1"}
    await asyncio.sleep(0)
    assert not running.done()
    host.cancel(GoneClients(frozenset(["me"]), term=7))
    assert isinstance((await running).error, Cancelled)


async def test_work_that_was_cancelled_before_there_was_a_second_process_is_not_begun_there() -> None:
    """An order to cancel may overtake work whose blobs are still being sent."""
    host, threaded = host_in_process(4), Threaded()
    host.cancel("run")
    host._second, host._here = await threaded.ready(), 1
    outcome = await host.run("run", packed(works.Count(job="j", label="a")), UNCONSTRAINED)
    assert isinstance(outcome.error, Cancelled)
    assert (await host.run("next", packed(works.Count(job="j", label="a")), UNCONSTRAINED)).result == 1
    assert threaded.helper.state.frames_done == 1
