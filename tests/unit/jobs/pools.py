"""Pools that observe or change results, and damage to one packet, for tests of several kinds of jobs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import av

from codecfleet.actors.device.work import Work
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.testing import LocalPool
from codecfleet.testing.fleet.local_pool import Look

ResultT = TypeVar("ResultT")


class WatchedPool(LocalPool):
    """A pool that reports when work was submitted."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.begun = asyncio.Event()

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Tell, and run it."""
        self.begun.set()
        return await super().result_of(work, look)


class AlteringPool(LocalPool):
    """A pool with one slot that changes the results of segments."""

    def __init__(self, change: Callable[[EncodedSegment], EncodedSegment]) -> None:
        super().__init__(1)
        self.change = change

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run the work, and change its result."""
        result = await super().result_of(work, look)
        return self.change(result) if isinstance(result, EncodedSegment) else result  # type: ignore[return-value]


def damage_packet(path: Path, packet: int) -> None:
    """Overwrite one packet, except the container's few bytes before it."""
    with av.open(str(path)) as container:
        packets = [(each.pos, each.size) for each in container.demux(video=0) if each.size]
    place, size = packets[packet]
    assert place is not None
    with path.open("r+b") as stream:
        stream.seek(place + 12)
        stream.write(b"\xff" * (size - 12))
