"""Jobs at their limits: a short film, what is asked of it, and something done while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from codecfleet import Fleet, Job, Report, TranscodeSpec
from codecfleet.jobs.report.events import Event, SegmentFinished
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

LIMIT_S = 20
"""How long a command, or what a test waits for, may take."""


def spec_of(source: Path | str, output: Path | str, **options: object) -> TranscodeSpec:
    """Return what to ask for."""
    return TranscodeSpec.model_validate({"source": str(source), "output": str(output), **options})


def transcode(spec: TranscodeSpec, act: Callable[[Job, Event], object] = lambda *_: None, *, slots: int = 2) -> Report:
    """Transcode on threads of this process; ``act`` sees every event while the job runs."""

    async def run() -> Report:
        async with Fleet(pool=LocalPool(slots)) as fleet:
            job = await fleet.transcode(spec)
            async for event in job.events():
                act(job, event)
            return await job

    return asyncio.run(run())


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A clip of 20 s with an access point every half second, alone in a folder."""
    clip = Clip(times=constant_times(500), keyframes=frozenset(range(0, 500, 12)), options=(("preset", "ultrafast"),))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return make_clip(tmp_path / "in" / "film.mp4", clip)


def later(trouble: Callable[[], object], *, after: int = 2) -> Callable[[Job, Event], None]:
    """Return what makes trouble once this many segments are finished."""
    seen = 0

    def act(_job: Job, event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, SegmentFinished)
        if isinstance(event, SegmentFinished) and seen == after:
            trouble()

    return act
