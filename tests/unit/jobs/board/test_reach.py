import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.tracks.audio import EncodeAudio
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.board.reach import SourceReach
from codecfleet.jobs.source.source import SourceStamp
from codecfleet.jobs.stills.plan import plan_stills
from codecfleet.jobs.stills.spec import StillsSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

if TYPE_CHECKING:
    from codecfleet.actors.media.stores import Shipment


class FarPool(LocalPool):
    """A pool that says that its workers are on other machines."""

    def __init__(self, address: str | None = None) -> None:
        super().__init__(1)
        self._state = replace(self._state, files_address=address)

    def move(self, address: str) -> None:
        """Let another process serve the files of this machine."""
        before, self._state = self._state, replace(self._state, files_address=address, changed=asyncio.Event())
        before.changed.set()


class Other(Work[None]):
    """Work that reads no source."""

    def run(self, context: WorkContext) -> None:
        """Do nothing."""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film."""
    return make_clip(tmp_path_factory.mktemp("films") / "film.mp4", Clip(times=constant_times(10)))


def audio(film: Path) -> EncodeAudio:
    """Return work on the film's sound."""
    return EncodeAudio(job="j", label="audio-1", source=str(film), stream_index=1, codec="aac")


def stills_work(film: Path) -> Any:
    """Return work on a segment of the film."""
    plan = plan_stills(StillsSpec(source=film, output=film.parent / "stills", count=1))
    return plan.measuring("j", Run(0, 0, 0, 1))


async def test_work_carries_the_version_and_is_not_shipped_unasked(film: Path) -> None:
    """Work carries the version of its source; without ``ship`` no server is started."""
    reach = SourceReach(FarPool(), SourceStamp.of(str(film)))
    bound: Any = await reach.bind(stills_work(film))
    assert (bound.decode.version, bound.decode.shipment, bound.ships) == (reach.stamp.anywhere, None, False)
    sound: Any = await reach.bind(audio(film))
    assert (sound.version, sound.shipment) == (reach.stamp.anywhere, None)


async def test_shipped_work_says_where_it_is_read_now(film: Path) -> None:
    """Shipped work has the current address of the files; after a host's death it waits for the next address."""
    pool = FarPool("a:1/files-0")
    reach = SourceReach(pool, SourceStamp.of(str(film)), ship=True)
    bound: Any = await reach.bind(stills_work(film))
    pool._state = replace(pool.state, files_address=None)
    binding = asyncio.create_task(reach.bind(audio(film)))
    await asyncio.sleep(0)
    pool.move("a:1/files-1")
    sound: Any = await binding
    shipments: list[Shipment] = [bound.decode.shipment, sound.shipment]
    assert [each.url for each in shipments] == [f"codecfleet-ship://a:1/files-{n}{film}" for n in range(2)]
    assert len({each.version for each in shipments}) == 1
    assert bound.ships
    assert sound.ships


async def test_what_needs_no_shipping(film: Path) -> None:
    """A source in a store, work without a source, and work on this machine are not shipped."""
    remote = SourceReach(FarPool(), SourceStamp("s3://films/film.mp4", (1, "tag")), ship=True)
    bound: Any = await remote.bind(stills_work(film))
    assert (bound.decode.version, bound.decode.shipment) == ((1, "tag"), None)
    here = SourceReach(LocalPool(1), SourceStamp.of(str(film)), ship=True)
    bound = await here.bind(stills_work(film))
    assert bound.decode.shipment is None
    other = Other(job="j", label="l")
    assert await here.bind(other) is other
