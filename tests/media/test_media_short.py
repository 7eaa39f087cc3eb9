import asyncio
from pathlib import Path

import pytest

from codecfleet.jobs.fleet import Fleet

from .cases import SHORT
from .table import Row, run_case

pytestmark = [pytest.mark.media, pytest.mark.ray, pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(300)]

CASES_AT_ONCE = 2
CUT = ("open GOP with recovery points", "interlaced transport stream with captions")


async def _run_all(footage: Path, output: Path) -> dict[str, Row]:
    at_once = asyncio.Semaphore(CASES_AT_ONCE)
    async with Fleet(workers=CASES_AT_ONCE) as fleet:

        async def one(subject: str) -> Row:
            async with at_once:
                return await run_case(fleet, SHORT[subject], footage=footage, output=output)

        return dict(zip(SHORT, await asyncio.gather(*map(one, SHORT)), strict=True))


def test_outputs_are_exact_or_rightly_refused(shared_media: Path, tmp_path: Path) -> None:
    """Every odd source gives a proven, exact output, or is refused for the right reason."""
    rows = asyncio.run(_run_all(shared_media, tmp_path))
    wrong = [f"{row.file} -> {row.case}: {row.outcome} {row.story} {row.failures}" for row in rows.values()]
    assert [line for line, row in zip(wrong, rows.values(), strict=True) if not row.outcome.is_right] == []
    assert min(rows[subject].segments for subject in CUT) > 2
