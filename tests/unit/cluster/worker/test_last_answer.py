"""A worker that its work broke ends itself, but not before the client has heard of that."""

import subprocess
import sys

import pytest

from codecfleet.cluster.worker.ray_worker import FENCED_CODE

PROGRAM = """
import asyncio
from codecfleet.actors.device.work import Work
from codecfleet.cluster.worker import ray_worker
from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.errors import DeviceLost

class Breaks(Work):
    def run(self, context):
        raise DeviceLost("it is broken")

async def main():
    worker = ray_worker.RayWorker(2)
    outcome = await worker.run("run", BlobCache(bytes).pack(Breaks(job="j", label="a"))[0])
    print(type(outcome.error).__name__, flush=True)
    {then}

ray_worker.ANSWER_S = {answer_s}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("then", "answer_s", "code"),
    [
        pytest.param("", 60, 0, id="it waits for word"),
        pytest.param("await worker.answered()", 60, FENCED_CODE, id="it got word"),
        pytest.param("await worker.watch()", 0.01, FENCED_CODE, id="no word came in time"),
    ],
)
def test_it_ends_once_its_answer_has_arrived(then: str, answer_s: float, code: int) -> None:
    """A death without an answer could have any cause: the work that broke it would run beside other work again."""
    program = PROGRAM.format(then=then, answer_s=answer_s)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("DeviceLost\n", code), done.stderr


def test_word_that_comes_to_a_sound_worker_ends_nothing() -> None:
    """Only a process that is ending waits for word."""
    program = "import asyncio\nfrom codecfleet.cluster.worker.ray_worker import RayWorker\n"
    program += "async def main():\n    await RayWorker(1).answered()\nasyncio.run(main())\n"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
