"""Batches from a fleet equal those of ``frames`` in this process, bit for bit."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import codecfleet
from codecfleet import Fleet, FleetFrames, FrameBatch, TensorFormat
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.cluster.fleet.pool import Asked, Pool
from codecfleet.cluster.fleet.run import WorkRun
from codecfleet.errors import (
    Cancelled,
    CodecfleetError,
    DeviceLost,
    EngineUnfit,
    FrameDamaged,
    InputUnreadable,
    NoSuchFrame,
    Unsupported,
    UsageError,
)
from codecfleet.jobs.fleet_frames import run
from codecfleet.jobs.fleet_frames.work import KeptFilms, MakeBatches
from codecfleet.jobs.frames.chosen import Film
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice

from ..fleet_batches import CHOICES, SMALL, Told, told
from ..frame_streams import GOPS, no_gpu, source
from ..pools import damage_packet

__all__ = ["source"]

Choose = Callable[[Any], Any]


class SeenPool(LocalPool):
    """A pool that remembers the work submitted to it."""

    def __init__(self, slots: int = 2, **options: Any) -> None:
        super().__init__(slots, **options)
        self.work: list[MakeBatches] = []
        self.runs: list[WorkRun[Any]] = []
        self.demands: list[Asked | None] = []

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Remember it."""
        del job
        self.demands.append(demand)

    def submit(self, work: Work[Any]) -> WorkRun[Any]:
        """Remember the work, and run it."""
        assert isinstance(work, MakeBatches)
        self.work.append(work)
        self.runs.append(super().submit(work))
        return self.runs[-1]


def of_fleet(path: Path, choose: Choose, pool: Pool, format_: TensorFormat = SMALL, **options: Any) -> Told:
    """Return the batches of 4 frames from a fleet."""

    async def read() -> Told:
        async with Fleet(pool=pool) as fleet:
            return await told(choose(fleet.frames(path, **options)).batches(4, format_))

    return asyncio.run(read())


def of_this_process(path: Path, choose: Choose, format_: TensorFormat = SMALL, **options: Any) -> Told:
    """Return the batches of 4 frames from software in this process."""

    async def read() -> Told:
        async with codecfleet.frames(path, decoder="software", **options) as film:
            return await told(aiter(choose(film).batches(4, format_)))

    return asyncio.run(read())


@pytest.mark.parametrize("choice", CHOICES)
def test_a_fleet_makes_the_same_batches(source: Path, choice: str) -> None:
    """Batches come in the requested order, however workers finish, including repeats and a short last batch."""
    late_first = [f"batches {n} to {n + 1}" for n in range(10, -1, -2)]
    pool = FaultyPool(LocalPool(3), finishing_order=late_first)
    found, error = of_fleet(source, CHOICES[choice], pool, every=1, strict=True)
    assert (found, error) == of_this_process(source, CHOICES[choice])
    assert [len(each[0]) for each in found[:-1]] == [4] * (len(found) - 1)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16"])
def test_each_type_crosses(source: Path, dtype: Any) -> None:
    """Every type comes back, even one that NumPy lacks; from a GPU too, and for a part of the film."""
    format_, part = TensorFormat(size=(32, 24), dtype=dtype), {"start_s": 0.5, "end_s": 1.5, "every": 2}
    expected = of_this_process(source, CHOICES["all"], format_, **part)
    assert len(expected[0]) == 4
    gpu = FakeDevice().gpu
    assert of_fleet(source, CHOICES["all"], LocalPool(2), format_, **part) == expected
    assert of_fleet(source, CHOICES["all"], LocalPool(2, device=gpu), format_, decoder="nvdec", **part) == expected
    assert gpu.use().sessions_made


def test_workers_keep_films(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first work carries the film's index, and workers keep it."""
    monkeypatch.setattr(run, "AHEAD_LEAST", 1)
    pool = SeenPool(1)
    of_fleet(source, CHOICES["all"], pool)
    sent = [work.reading is not None for work in pool.work]
    assert 1 <= sum(sent[:4]) <= 2
    assert not any(sent[4:])
    kept, films = KeptFilms(most=2), [Film(pool.work[0].request, no_gpu) for _ in range(3)]
    assert kept.film("a", None) is None
    assert [kept.film(key, lambda film=film: film) for key, film in zip("abc", films, strict=True)] == films  # type: ignore[misc]
    assert [kept.film(key, None) for key in "abc"] == [None, *films[1:]]


def test_lost_workers_and_devices_change_nothing(source: Path) -> None:
    """A piece whose worker dies is made again, and in software if the device is lost."""
    choose, first, second = CHOICES["all"], "batches 0 to 1", "batches 2 to 3"
    expected = of_this_process(source, choose)
    pool = FaultyPool(LocalPool(2, device=FakeDevice().gpu), kills=[(first, 1), (second, 2)])
    assert of_fleet(source, choose, pool) == expected
    assert min(count for (_, label), count in pool.attempts.items() if label in (first, second)) > 1
    lost = DeviceLost("it fell off the bus")
    pool = FaultyPool(LocalPool(2, device=FakeDevice().gpu), errors={(first, n): lost for n in (1, 2)})
    assert of_fleet(source, choose, pool) == expected
    pool = FaultyPool(LocalPool(2, device=FakeDevice().gpu), errors={(first, n): lost for n in (1, 2, 3)})
    assert of_fleet(source, choose, pool, decoder="nvdec") == ([], lost)


@pytest.mark.parametrize("strict", [False, True])
def test_damage_comes_in_its_place(tmp_path: Path, strict: bool) -> None:  # noqa: FBT001 - a case
    """Damage comes after all batches before it, even those made together with the damaged batch."""
    options = (("x264-params", "keyint=60:min-keyint=60:scenecut=0:bframes=0"),)
    path = make_clip(tmp_path / "film.mkv", Clip(times=constant_times(60), options=options))
    damage_packet(path, 30)
    expected, error = of_this_process(path, CHOICES["all"], strict=strict)
    assert isinstance(error, FrameDamaged)
    assert len(expected) == 30 // 4
    found, met = of_fleet(path, CHOICES["all"], LocalPool(2), strict=strict)
    assert found == expected
    assert isinstance(met, FrameDamaged)
    assert met.frame == error.frame


def test_what_is_wrong_is_said_before_any_work(source: Path, tmp_path: Path) -> None:
    """Wrong requests are refused in one line, and no worker gets any work."""
    pool = SeenPool()

    def refused(use: Callable[[Fleet], Any], kind: type[CodecfleetError], match: str) -> None:
        async def read() -> None:
            async with Fleet(pool=LocalPool(1)) as fleet:
                fleet._pool = pool
                batches = use(fleet)
                await anext(batches)

        with pytest.raises(kind, match=match):
            asyncio.run(read())

    large = TensorFormat(size=(2048, 2048))
    for use, kind, match in (
        (lambda fleet: fleet.frames(source.read_bytes()), UsageError, "cannot read this bytes"),
        (lambda fleet: fleet.frames(io.BytesIO(b"film")), UsageError, "cannot read this BytesIO"),
        (lambda fleet: fleet.frames(source, place="device"), UsageError, "does not accept place"),
        (lambda fleet: fleet.frames(source, every=0), UsageError, "every"),
        (lambda fleet: fleet.frames(source).batches(0), UsageError, "at least one frame"),
        (lambda fleet: fleet.frames(source).batches(16, large), UsageError, "a batch of 16 frames has 192 MiB"),
        (lambda fleet: fleet.frames(source).batches(4, TensorFormat(crop=(60, 0, 9, 9))), UsageError, "crop"),
        (lambda fleet: fleet.frames(source).at([99]).batches(4), NoSuchFrame, "no frame 99"),
        (lambda fleet: fleet.frames(tmp_path / "none.mkv").batches(4), CodecfleetError, "none.mkv"),
    ):
        refused(use, kind, match)
    assert pool.work == []
    with pytest.raises(UsageError, match="not open"):
        Fleet(pool=pool).frames(source)


def test_a_fleet_without_gpus_refuses_nvdec(source: Path) -> None:
    """Without GPUs NVDEC is refused before any work; a worker whose GPU cannot do the work says so."""
    pool = SeenPool(1)
    assert isinstance(of_fleet(source, CHOICES["all"], pool, decoder="nvdec")[1], Unsupported)
    assert pool.work == []
    of_fleet(source, CHOICES["all"], pool := SeenPool(1, device=FakeDevice().gpu), decoder="nvdec")
    with pytest.raises(EngineUnfit):
        pool.work[0].run(WorkContext())


def test_a_source_that_changes_is_an_error(source: Path, tmp_path: Path) -> None:
    """A source that changes is an error, because batches of two versions would not fit together."""
    path = tmp_path / "film.mkv"
    path.write_bytes(source.read_bytes())

    async def read() -> None:
        async with Fleet(pool=LocalPool(1)) as fleet:
            film = fleet.frames(path)
            assert await film.count() == 48
            assert (await told(film.batches(8, SMALL)))[1] is None
            os.utime(path, (1, 1))
            assert isinstance((await told(film.batches(8, SMALL)))[1], InputUnreadable)

    asyncio.run(read())


def test_a_film_states_its_times(source: Path) -> None:
    """The times are those of ``codecfleet.frames``; in an event loop, the index must have been read."""

    async def read() -> None:
        async with Fleet(pool=LocalPool(1)) as fleet:
            film = fleet.frames(source, every=3)
            with pytest.raises(UsageError):
                film.times_s  # noqa: B018 - reading the property raises
            await film.count()
            assert film.times_s == times_s

    with codecfleet.frames(source, decoder="software", every=3) as frames:
        times_s = frames.times_s
        assert times_s == [frame.time_s for frame in frames]
    asyncio.run(read())


def in_loop(pool: Pool, path: Path, use: Callable[[FleetFrames], AsyncIterator[None]] | Any) -> None:
    """Run a test on the frames of a fleet."""

    async def act() -> None:
        async with Fleet(pool=pool) as fleet:
            await use(fleet.frames(path))

    asyncio.run(act())


def test_leaving_ends_the_work(tmp_path: Path) -> None:
    """Closing the iterator, or the fleet, ends all work."""
    path = make_clip(tmp_path / "film.mkv", Clip(times=constant_times(400), options=GOPS))
    pool = SeenPool()

    async def leave(film: FleetFrames) -> None:
        async with aclosing(film.batches(8, SMALL)) as batches:
            assert len(await anext(batches)) == 8
        assert all(each.result.done() for each in pool.runs)
        assert len(pool.runs) < 50
        batches = film.batches(8, SMALL)
        assert len(await anext(batches)) == 8
        await pool.aclose()
        _, error = await told(batches)
        assert isinstance(error, Cancelled)

    in_loop(pool, path, leave)


def test_little_is_made_ahead(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody takes batches, slots limit their number and memory their size, and other jobs get the slots."""
    frame_bytes = 3 * 32 * 24 * 4
    for made_bytes, most in ((1 << 30, 4), (17 * frame_bytes, 2)):
        monkeypatch.setattr(run, "MADE_BYTES", made_bytes)
        monkeypatch.setattr(run, "AHEAD_LEAST", 1)
        pool = SeenPool(2)

        async def wait(film: FleetFrames, pool: SeenPool = pool, most: int = most) -> None:
            async with aclosing(film.batches(8, SMALL)) as batches:
                await anext(batches)
                while not all(each.result.done() for each in pool.runs):
                    await asyncio.wait([each.result for each in pool.runs])
                    await asyncio.sleep(0)
                pieces = {work.positions[0] for work in pool.work}
                # One was taken, one is ready for the consumer.
                assert len(pieces) <= most + 2
                while pool.demands[-1] is not None:  # noqa: ASYNC110 - the batches' copies are made in threads
                    await asyncio.sleep(0)
                assert any(pool.demands)

        in_loop(pool, source, wait)


def test_batches_are_the_consumer_s(source: Path) -> None:
    """Batches are writable, whatever memory they arrived in."""

    class ReadOnly(LocalPool):
        async def result_of(self, work: Work[Any], look: Any) -> Any:
            made = await super().result_of(work, look)
            for batch in () if made is None else made.batches:
                getattr(batch.data, "bits", batch.data).flags.writeable = False
            return made

    async def write(film: FleetFrames) -> None:
        for dtype in ("uint8", "bfloat16"):
            batches: list[FrameBatch] = [each async for each in film[:8].batches(4, TensorFormat(dtype=dtype))]
            assert all(getattr(each.data, "bits", each.data).flags.writeable for each in batches)

    in_loop(ReadOnly(1), source, write)
