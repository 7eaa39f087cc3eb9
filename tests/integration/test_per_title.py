"""``--per-title``: renditions that suit the film, the same for any workers, and probes that are not repeated."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import Fleet, LadderReport, LadderSpec
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.quality.measuring import UNITS
from codecfleet.errors import Unsupported, UsageError
from codecfleet.jobs.ladder.plan import PROBES, plan_read, probing_for, read_before, read_ladder
from codecfleet.jobs.title.rounds import ProbeRecord
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

from ..sounds import film as sounding_film
from .test_ladder import ResultT, contents, ladder

LIMITS = {"high": 120_000, "middle": 40_000, "low": 20_000}
PRESET = """
codec = "h264"
preset = 1
keyframe_interval = "0.5"
[[rendition]]
name = "high"
scale = "48p"
quality = 26
maxrate = "120k"
bufsize = "240k"
[[rendition]]
name = "middle"
scale = "32p"
bitrate = "40k"
[[rendition]]
name = "low"
scale = "24p"
quality = 26
maxrate = "20k"
bufsize = "40k"
"""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of two seconds, with a keyframe every half second."""
    clip = Clip(times=constant_times(50), keyframes=frozenset(range(0, 50, 12)))
    return make_clip(tmp_path_factory.mktemp("film") / "film.mp4", clip)


def wanted(film: Path, folder: Path, preset: str = PRESET, **options: object) -> LadderSpec:
    """Return the request for a ladder chosen by PSNR, since XPSNR does not measure such small pictures."""
    folder.mkdir(exist_ok=True)
    (folder / "own.toml").write_text(preset)
    given = {"per_title": "psnr", "segment_s": Fraction(1, 2), "packaged_s": Fraction(1)} | options
    return LadderSpec(source=film, output=folder / "ladder", preset=folder / "own.toml", **given)


class CountingPool(LocalPool):
    """A pool that counts encodings by their CRF, and sets an event after some works."""

    def __init__(self, slots: int, *, reached: int = 0) -> None:
        super().__init__(slots)
        self.measured: Counter[int] = Counter()
        self.reached = asyncio.Event()
        self._left = reached

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Count the encodings that are measured."""
        result = await super().result_of(work, look)
        for each in getattr(work, "segments", (work,)):
            if getattr(each, "measured", None) is not None:
                self.measured[each.encoder.target.crfs[0]] += 1
        self._left -= 1
        if not self._left:
            self.reached.set()
        return result


@pytest.fixture(scope="module")
def whole(film: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[LadderReport, int]:
    """The film's ladder, made by one worker, and the number of its probes."""

    async def made() -> tuple[LadderReport, int]:
        async with Fleet(pool=(pool := CountingPool(1))) as fleet:
            return await fleet.ladder(wanted(film, tmp_path_factory.mktemp("whole"))), pool.measured.total()

    return asyncio.run(made())


def test_the_renditions_are_points_of_the_hull_with_any_workers(
    film: Path, whole: tuple[LadderReport, int], tmp_path: Path
) -> None:
    """They are named after their sizes, keep the limits of the preset, and the report says how they were chosen."""
    report, _ = whole
    written = json.loads((Path(report.output) / "ladder.json").read_text())
    title = written["per_title"]["codecs"]["h264"]
    assert written["per_title"]["measured"] == [64, 48]
    assert next(iter(title["chosen"].values()))["for"] == "high"
    sizes = {track["name"]: [track["width"], track["height"]] for track in written["tracks"] if track["height"]}
    assert list(title["chosen"]) == [name for name, _ in report.renditions]
    for number, (name, made) in enumerate(report.renditions):
        chosen = title["chosen"][name]
        point = {key: chosen[key] for key in ("width", "height", "crf", "bps", "quality")}
        assert number == 0 or point in title["hull"]
        assert sizes[name] == [chosen["width"], chosen["height"]]
        assert chosen["bps"] <= LIMITS[chosen["for"]]
        assert made.rate is None or made.rate.asked == f"{chosen['bps']} bit/s"
    assert set(title["chosen"]) | {each.name for each in report.left_out} >= set(LIMITS)
    other = wanted(film, tmp_path / "three")
    ladder(other, 3)
    assert contents(Path(other.output)) == contents(Path(report.output))


def test_probes_are_not_repeated(film: Path, whole: tuple[LadderReport, int], tmp_path: Path) -> None:
    """A ladder that was cancelled while it probed goes on with the other probes, and gives the same bytes."""
    spec, (report, full) = wanted(film, tmp_path), whole

    async def made(pool: CountingPool, *, is_ended: bool = False) -> int:
        async with Fleet(pool=pool) as fleet:
            task = asyncio.create_task(fleet.ladder(spec))
            if is_ended:
                await pool.reached.wait()
                task.cancel()
            await asyncio.gather(task, return_exceptions=is_ended)
        return pool.measured.total()

    async def run() -> int:
        await made(CountingPool(1, reached=6), is_ended=True)
        return await made(CountingPool(2))

    assert 0 < asyncio.run(run()) < full
    assert contents(Path(spec.output)) == contents(Path(report.output))


def test_a_plan_shows_the_probes_and_then_the_choice(film: Path, tmp_path: Path) -> None:
    """Without results the plan has the preset's renditions; with all results of an earlier run, those that it chose."""
    read = read_ladder(wanted(film, tmp_path).resolved(), tmp_path / "work")
    before = read_before(read)
    assert before.per_title is not None
    assert [each.found for each in before.per_title.codecs] == [None]
    assert list(plan_read(before).plans) == ["high", "middle", "low"]
    probing = probing_for(read)
    record = ProbeRecord.read(read.folder / PROBES, probing.key)
    units = [(size, unit) for size in probing.sizes for unit in probing.left(size, {})]
    for size, (crf, segment) in units[1:]:
        record.add(size.name(crf, segment), (100_000 // crf, 25, (60 - crf) * UNITS))
    assert [each.rung.name for each in read_before(read).rungs] == ["high", "middle", "low"]
    record.add(units[0][0].name(*units[0][1]), (4_000, 25, 40 * UNITS))
    after = plan_read(read_before(read))
    assert after.per_title is not None
    (codec,) = after.per_title.codecs
    assert codec.found is not None
    assert list(after.plans) == list(codec.names.values())
    assert len(after.per_title.lines()) == 1 + len(after.plans)
    better = read_ladder(wanted(film, tmp_path, per_title="psnr:69").resolved(), tmp_path / "work")
    limited = read_before(better).per_title
    assert limited is not None
    assert "below the goal of 69" in limited.lines()[1]
    other = read_ladder(wanted(film, tmp_path, end_s=Fraction(2)).resolved(), tmp_path / "work")
    assert not ProbeRecord.read(read.folder / PROBES, probing_for(other).key).found
    (read.folder / PROBES).write_text("{")
    assert not ProbeRecord.read(read.folder / PROBES, probing.key).found


def test_pictures_are_compared_at_the_size_of_the_largest(film: Path, tmp_path: Path) -> None:
    """A smaller picture loses more, and one of that size as much as any target quality measures."""
    probing = probing_for(read_ladder(wanted(film, tmp_path).resolved(), tmp_path))
    high, low = probing.sizes[0], probing.sizes[-1]
    unit = probing.left(high, {})[0]
    works = [probing.work(each, "job", unit, 0) for each in (high, low)]
    found = [work.run(WorkContext()).quality for work in (works[0], replace(works[0], measured=None), works[1])]
    means = [sum(each.values) / len(each.values) for each in found if each is not None]
    assert means[0] == means[1] > means[2]
    assert [each.crf for each in found if each is not None] == [str(unit[0])] * 3
    assert [each.encodes for each in found if each is not None] == [1] * 3


def test_renditions_of_one_size_have_names_of_their_own(film: Path, tmp_path: Path) -> None:
    """A simple film keeps its size, so each rendition has it, with fewer bits; no preset's name stands for it."""
    read = read_ladder(wanted(film, tmp_path).resolved(), tmp_path / "work")
    probing = probing_for(read)
    record = ProbeRecord.read(read.folder / PROBES, probing.key)
    for number, size in enumerate(probing.sizes):
        for crf, segment in probing.left(size, {}):
            quality = 60 - crf - 30 * number
            record.add(size.name(crf, segment), (2 ** (12 - (crf - 16) // 5), 25, quality * UNITS))
    after = read_before(read)
    assert [each.rung.name for each in after.rungs] == ["high", "high-2", "high-3"]
    assert {each.scale for each in after.rungs} == {read.rungs[0].scale}
    assert {each.of_size for each in after.rungs} == {"high"}
    assert [each.name for each in after.left_out] == ["middle", "low"]


def test_a_bitrate_below_all_probes_stays(film: Path, tmp_path: Path) -> None:
    """The cheapest point tells the size, but the rendition gets no more than the preset states."""
    rate = 'bitrate = "60k"\nmaxrate = "70k"\nbufsize = "140k"'
    preset = PRESET.replace('quality = 26\nmaxrate = "120k"\nbufsize = "240k"', rate)
    read = read_ladder(wanted(film, tmp_path, preset).resolved(), tmp_path / "work")
    probing = probing_for(read)
    record = ProbeRecord.read(read.folder / PROBES, probing.key)
    for size in probing.sizes:
        for crf, segment in probing.left(size, {}):
            record.add(size.name(crf, segment), (1_000_000 // crf, 25, (60 - crf) * UNITS))
    plans = plan_read(read_before(read)).plans
    assert [plan.spec.bitrate_bps for plan in plans.values()] == [60_000]


def test_a_mistake_is_told_before_the_probes(tmp_path: Path) -> None:
    """Probes may take long, and cannot mend what the package needs."""
    source = sounding_film(tmp_path / "film.mkv", "pcm_s16le", ("stereo", 48_000))

    async def made() -> int:
        pool = CountingPool(1)
        async with Fleet(pool=pool) as fleet:
            with pytest.raises(Unsupported, match="players cannot play"):
                await fleet.ladder(wanted(source, tmp_path, audio="copy"))
        return pool.measured.total()

    assert asyncio.run(made()) == 0


def test_what_cannot_be_chosen_is_refused(film: Path, tmp_path: Path) -> None:
    """NVENC and a target quality leave no CRF to choose, and a film that grows has no sample."""
    targeted = PRESET.replace('bitrate = "40k"', 'target_quality = "psnr:40"')
    with pytest.raises(Unsupported, match="the rendition middle uses a target quality"):
        probing_for(read_ladder(wanted(film, tmp_path, targeted).resolved(), tmp_path))
    with pytest.raises(Unsupported, match="the rendition high uses NVENC"):
        probing_for(read_ladder(wanted(film, tmp_path, encoder="nvenc").resolved(), tmp_path))
    with pytest.raises((UsageError, ValueError), match="exclude each other"):
        wanted(film, tmp_path, follow=True)
