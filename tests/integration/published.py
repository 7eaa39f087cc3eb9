"""A job, and what ``verify`` says of its output."""

import asyncio
from pathlib import Path

from codecfleet import Fleet
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.verify.job import verify
from codecfleet.jobs.verify.verdict import Verdict
from codecfleet.testing import LocalPool


def published(source: Path, output: Path, **options: object) -> tuple[Report, Verdict]:
    """Transcode, and verify the output as the user would: with the report, which says which part it took."""

    async def run() -> Report:
        async with Fleet(pool=LocalPool(slots=2)) as fleet:
            spec = {"source": str(source), "output": str(output), "codec": "h264", "preset": 7} | options
            return await (await fleet.transcode(TranscodeSpec.model_validate(spec)))

    report = asyncio.run(run())
    written = output.with_name(f"{output.name}.json")
    written.write_text(report.model_dump_json())
    return report, verify(source, output, report=written)
