"""Ladders whose renditions have a bitrate: what they reach, what they decode, and the same bytes after an end."""

import asyncio
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import Fleet, LadderReport, LadderSpec, TranscodeSpec
from codecfleet.jobs.package.names import track_file
from codecfleet.jobs.report.events import Event, Progress
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import transcode
from .test_ladder import contents, ladder, packets

RATES = {"high": (48, 60_000), "middle": (32, 30_000), "low": (24, 20_000)}
"""The height and the bitrate of each rendition, by name."""
SEGMENT_S = Fraction(1, 2)
COMMON = {"codec": "h264", "preset": 1, "keyframe_interval": "0.5"}


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of two seconds, with a keyframe every half second."""
    clip = Clip(times=constant_times(50), keyframes=frozenset(range(0, 50, 12)))
    return make_clip(tmp_path_factory.mktemp("film") / "film.mp4", clip)


@pytest.fixture(scope="module")
def whole(film: Path, tmp_path_factory: pytest.TempPathFactory) -> LadderReport:
    """The film's ladder, made by one worker."""
    return ladder(rated(film, tmp_path_factory.mktemp("whole")), 1)


def rated(film: Path, folder: Path) -> LadderSpec:
    """Return the request for a ladder of ``RATES``."""
    head = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in COMMON.items()]
    tables = [
        f'[[rendition]]\nname = "{name}"\nscale = "{lines}p"\nbitrate = {rate}' for name, (lines, rate) in RATES.items()
    ]
    folder.mkdir(exist_ok=True)
    preset = folder / "own.toml"
    preset.write_text("\n".join([*head, *tables]))
    return LadderSpec(source=film, output=folder / "ladder", preset=preset, segment_s=SEGMENT_S, packaged_s=1)


def test_each_rendition_is_the_transcode_with_that_bitrate(film: Path, whole: LadderReport, tmp_path: Path) -> None:
    """Its packets are the same, although all renditions share the decodes of a pass, however many workers there are."""
    for name, made in whole.renditions:
        assert made.rate is not None
        assert 0.9 * made.rate.wanted_bps <= made.rate.reached_bps <= made.rate.wanted_bps
        lines, rate = RATES[name]
        alone = TranscodeSpec(
            source=film,
            output=tmp_path / f"{name}.mp4",
            segment_s=SEGMENT_S,
            keyframe_interval_s=SEGMENT_S,
            scale=None if lines == 48 else (None, lines),
            bitrate_bps=rate,
            preset=1,
        )
        assert transcode(alone).rate == made.rate
        track = next(each.given for each in whole.package.tracks if each.given.name == name)
        assert packets(Path(whole.output) / track_file(track)) == packets(Path(alone.output))
    encodes = [made.rate.encodes for _, made in whole.renditions if made.rate is not None]
    assert whole.encoded == sum(encodes)
    assert max(encodes) <= whole.decoded < sum(encodes) / 2
    other = rated(film, tmp_path / "three")
    ladder(other, 3)
    assert contents(Path(other.output)) == contents(Path(whole.output))


@pytest.mark.parametrize("part", [Fraction(1, 3), Fraction(3, 4)])
def test_a_cancelled_ladder_goes_on_in_its_pass(
    part: Fraction, film: Path, whole: LadderReport, tmp_path: Path
) -> None:
    """What a pass has encoded is not encoded again, and the bytes are those of a ladder that was not cancelled."""
    spec = rated(film, tmp_path / "ended")

    async def ended() -> None:
        reached = asyncio.Event()

        def until(event: Event) -> None:
            if isinstance(event, Progress) and event.frames_done > part * event.frames_total:
                reached.set()

        async with Fleet(pool=LocalPool(1)) as fleet:
            task = asyncio.create_task(fleet.ladder(spec, tell=until))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ended())
    report = ladder(spec)
    assert 0 < report.encoded < whole.encoded
    assert contents(Path(spec.output)) == contents(Path(whole.output))
