"""What a job publishes, ``verify`` calls exact: sources that once parted the two."""

import asyncio
from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet import Fleet
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.verify.job import verify
from codecfleet.jobs.verify.verdict import Verdict
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

pytestmark = pytest.mark.timeout(60)


def published(source: Path, output: Path, **options: object) -> tuple[Report, Verdict]:
    """Transcode, and verify the output as the user would: with the same part, and with the report."""

    async def run() -> Report:
        async with Fleet(pool=LocalPool(slots=2)) as fleet:
            spec = {"source": str(source), "output": str(output), "codec": "h264", "preset": 7} | options
            return await (await fleet.transcode(TranscodeSpec.model_validate(spec)))

    report = asyncio.run(run())
    written = output.with_name(f"{output.name}.json")
    written.write_text(report.model_dump_json())
    part = {name: options.get(name) for name in ("start_s", "end_s")}
    return report, verify(source, output, report=written, **part)  # type: ignore[arg-type] # only times are in it


def remuxed(source: Path, target: Path, first_packet: int) -> Path:
    """Copy a file's packets from one on, as a recording that was begun in the middle."""
    with av.open(str(source)) as before, av.open(str(target), "w") as after:
        stream = after.add_stream_from_template(before.streams.video[0])
        for number, packet in enumerate(before.demux(video=0)):
            if number >= first_packet and packet.size:
                packet.stream = stream
                after.mux(packet)
    return target


@pytest.mark.parametrize(("start_s", "end_s", "frames"), [(None, Fraction(1, 2), 11), (Fraction(2, 5), None, 33)])
def test_a_part_counts_from_the_first_packet(
    start_s: Fraction | None, end_s: Fraction | None, frames: int, tmp_path: Path
) -> None:
    """Leading pictures that never decode still take their time, for the job and for verify alike."""
    clip = Clip(
        times=constant_times(50, step=1),
        time_base=Fraction(1, 25),
        encoder="mpeg2video",
        options=(("bf", "2"), ("b_strategy", "0")),
        keyframes=frozenset({0, 9, 18}),
    )
    whole = make_clip(tmp_path / "whole.ts", clip)
    source = remuxed(whole, tmp_path / "open.ts", first_packet=7)
    report, verdict = published(source, tmp_path / "out.mkv", start_s=start_s, end_s=end_s)
    assert (report.frames, verdict.failures) == (frames, ())
