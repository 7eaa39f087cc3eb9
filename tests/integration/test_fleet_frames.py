"""Frames that a fleet's processes decode, here or on Ray, are bit for bit the batches of ``frames``."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

import codecfleet
from codecfleet import Fleet
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.cluster.fleet.leases.connecting import ground_on
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.errors import FrameDamaged
from codecfleet.testing import works
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.unit.jobs.fleet_batches import CHOICES, SMALL, told
from tests.unit.jobs.pools import damage_packet

from .ray_cluster import ray_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAMES = 320
GROUPS = (("x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=2:open-gop=1"),)
ON_CLUSTER = """
import asyncio, hashlib, json, sys
import codecfleet

async def main():
    async with codecfleet.Fleet() as fleet:
        film = fleet.frames(sys.argv[1])
        form = codecfleet.TensorFormat(size=(32, 24), dtype="float32", mean=0.5, std=0.25)
        batches = [each async for each in film[::3].batches(16, form)]
    print(json.dumps([[each.indices, hashlib.sha256(each.data.tobytes()).hexdigest()] for each in batches]))

asyncio.run(main())
"""


class Kept(Fleet):
    """A fleet that leaves its pool open for the next test."""

    async def __aexit__(self, *_: object) -> None:
        """Leave everything open."""


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=["processes", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow, pytest.mark.ci])],
)
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    """Two slots in one process, either this machine's workers without Ray, or a private Ray."""
    if request.param == "ray":
        opened: Pool = LeasedPool(ground_on(request.getfixturevalue("private_ray"), 2).reach, 2)
    else:
        opened = default_pool("local", 2)
    async with opened as started:
        yield started


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Open groups of 16 pictures."""
    path = tmp_path_factory.mktemp("clip") / "film.mkv"
    return make_clip(path, Clip(times=constant_times(FRAMES), options=GROUPS))


async def expected(path: Path, choose: Callable[[Any], Any], frames: int = 4) -> Any:
    """Return the batches as this process decodes them."""
    async with codecfleet.frames(path, decoder="software") as film:
        return await told(aiter(choose(film).batches(frames, SMALL)))


async def process(pool: Pool) -> int:
    """Return a worker's process."""
    return await pool.submit(works.Ask(job="who", label="who"))


async def test_the_batches_are_those_of_this_process(pool: Pool, clip: Path) -> None:
    """Batches in any order, with repeats and a short last one, equal this process's, and their arrays are writable."""
    async with Kept(pool=pool) as fleet:
        film = fleet.frames(clip)
        assert await film.count() == FRAMES
        for choose in CHOICES.values():
            assert await told(choose(film).batches(4, SMALL)) == await expected(clip, choose)
        assert [batch.data.flags.writeable async for batch in film[:20].batches(16)] == [True, True]


async def test_damage_crosses_as_itself(pool: Pool, clip: Path, tmp_path: Path) -> None:
    """The error names the frame, and comes after the batches before it."""
    path = shutil.copy(clip, tmp_path)
    damage_packet(Path(path), 120)
    local, error = await expected(path, CHOICES["all"])
    async with Kept(pool=pool) as fleet:
        found, met = await told(fleet.frames(path).batches(4, SMALL))
    assert isinstance(met, FrameDamaged)
    assert len(found) > 16
    assert (found, met.message, met.frame) == (local, error.message, error.frame)


async def test_a_worker_that_dies_half_way_changes_nothing(pool: Pool, clip: Path) -> None:
    """Another worker, which does not know the film yet, makes the lost batches again."""
    worker = await process(pool)
    found = []
    async with Kept(pool=pool) as fleet:
        async for batch in fleet.frames(clip).batches(2, SMALL):
            if not found:
                os.kill(worker, signal.SIGKILL)
            found.append((batch.indices, batch.data.tobytes()))
    local, _ = await expected(clip, CHOICES["all"], 2)
    assert found == [(each[0], each[-1]) for each in local]
    assert not psutil.pid_exists(worker) or await process(pool) != worker


async def test_leaving_half_way_frees_the_workers(pool: Pool, clip: Path) -> None:
    """After a program leaves the frames half way, other work runs at once."""
    async with Kept(pool=pool) as fleet, aclosing(fleet.frames(clip).batches(2, SMALL)) as batches:
        assert (await anext(batches)).indices == (0, 1)
    assert await asyncio.gather(*(pool.submit(works.Count(job="j", label=f"{n}")) for n in range(2))) == [1, 1]


@pytest.mark.ray
@pytest.mark.slow
async def test_nodes_decode_for_a_program_elsewhere(clip: Path) -> None:
    """On a cluster of two nodes, only batches are transferred."""
    with ray_cluster(1, 1) as cluster:
        found = json.loads(await asyncio.to_thread(cluster.python, ON_CLUSTER, str(clip), timeout_s=120))
    local, _ = await expected(clip, lambda film: film[::3], 16)
    assert found == [[list(each[0]), hashlib.sha256(each[-1]).hexdigest()] for each in local]
