"""Jobs on threads of this process, the verdict on their outputs, and remuxed films."""

import asyncio
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet import Fleet, Job, Report, TranscodeSpec
from codecfleet.actors.decode.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.report.events import Event, SegmentFinished
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.verify.job import verify
from codecfleet.jobs.verify.verdict import Verdict
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

LIMIT_S = 20
"""A limit for commands, and for what a test waits for."""
LOSSLESS: dict[str, object] = {"codec": "h264", "quality": 0, "preset": 1}


def spec_of(source: Path | str, output: Path | str, **options: object) -> TranscodeSpec:
    """Return a job's request."""
    return TranscodeSpec.model_validate({"source": str(source), "output": str(output), **options})


def planned(source: Path | str, output: Path | str = "out.mkv", **options: object) -> Plan:
    """Return a job's plan."""
    return plan_transcode(spec_of(source, output, **options))


def transcode(
    spec: TranscodeSpec,
    act: Callable[[Job, Event], object] = lambda *_: None,
    *,
    slots: int = 2,
    pool: Pool | None = None,
    keeps_record: bool = False,
) -> Report:
    """Transcode; ``act`` gets every event while the job runs."""

    async def run() -> Report:
        async with Fleet(pool=pool or LocalPool(slots)) as fleet:
            job = await fleet.transcode(spec, keeps_record=keeps_record)
            async for event in job.events():
                act(job, event)
            return await job

    return asyncio.run(run())


def lossless(source: Path, output: Path, **options: object) -> Report:
    """Transcode losslessly, in segments of half a second."""
    return transcode(spec_of(source, output, **{"segment_s": Fraction(1, 2), **LOSSLESS, **options}), slots=3)


def verified(source: Path, output: Path, report: Report, **part: Any) -> Verdict:
    """Verify an output with its job's report."""
    saved = output.with_name(f"{output.name}.json")
    saved.write_text(report.model_dump_json())
    return verify(source, output, report=saved, **part)


def published(source: Path, output: Path, **options: object) -> tuple[Report, Verdict]:
    """Transcode, and verify the output with the report."""
    report = transcode(spec_of(source, output, **({"codec": "h264", "preset": 7} | options)))
    return report, verified(source, output, report)


def shown(path: Path) -> list[PictureHash]:
    """Return every picture of a sequential decode, with its time relative to the first, in microseconds."""
    index = read_source(str(path)).index
    whole = DecodeRange(
        source=str(path),
        stream_index=index.stream_index,
        time_base=index.time_base,
        nominal_ticks=index.nominal_ticks,
        shifts=index.shifts,
        expected_ticks=index.expected_from(None, None),
        untimed=index.untimed,
    )
    pictures = [picture_hash(ticks, frame) for ticks, frame in decode_range(whole, DecodeTally(), SOFTWARE)]
    first = pictures[0].ticks
    return [PictureHash(round((p.ticks - first) * index.time_base * 1_000_000), p.digest) for p in pictures]


def shown_for_any_cuts(source: Path, folder: Path, **options: object) -> list[PictureHash]:
    """Return the pictures of a lossless job, equal for one segment and for many, on one worker and on three."""
    whole = lossless(source, folder / "whole.mkv", segment_s=Fraction(100), **options)
    cut = [lossless(source, folder / f"{n}.mkv", segment_s=Fraction(12, 25), workers=n, **options) for n in (1, 3)]
    assert len(cut[0].segments) > len(whole.segments) == 1
    assert cut[0].proof.output_sha256 == cut[1].proof.output_sha256
    found = shown(folder / "whole.mkv")
    assert found == shown(folder / "1.mkv")
    return found


def remuxed(
    sources: Path | Sequence[Path],
    target: Path,
    keep: Callable[[Any], object] = lambda _packet: True,
    *,
    prepare: Callable[[Any], object] = lambda _container: None,
    options: dict[str, str] | None = None,
) -> Path:
    """Copy all tracks of files into one: the packets for which ``keep`` returns True, whose times it may change.

    ``prepare`` gets the container before the header is written; ``options`` are the muxer's.
    """
    sources = [sources] if isinstance(sources, Path) else sources
    with av.open(str(target), "w", container_options=options or {}) as after:
        prepare(after)
        opened = [av.open(str(source)) for source in sources]
        tracks = [[after.add_stream_from_template(stream) for stream in each.streams] for each in opened]
        for before, streams in zip(opened, tracks, strict=True):
            for packet in before.demux():
                if packet.size and keep(packet):
                    packet.stream = streams[packet.stream_index]
                    after.mux(packet)
            before.close()
    return target


def moved(packet: Any, seconds: Fraction) -> bool:
    """Shift a packet's times and keep the packet; for ``remuxed``."""
    ticks = int(seconds / packet.time_base)
    packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
    return True


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A clip of 10 s with an access point every half second, alone in a folder."""
    clip = Clip(times=constant_times(250), keyframes=frozenset(range(0, 250, 12)), options=(("preset", "ultrafast"),))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return make_clip(tmp_path / "in" / "film.mp4", clip)


def later(trouble: Callable[[], object], *, after: int = 2) -> Callable[[Job, Event], None]:
    """Return a function that makes trouble once this many segments are finished."""
    seen = 0

    def act(_job: Job, event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, SegmentFinished)
        if isinstance(event, SegmentFinished) and seen == after:
            trouble()

    return act
