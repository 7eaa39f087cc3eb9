import asyncio
from pathlib import Path

import pytest

from codecfleet.jobs.fleet import Fleet
from codecfleet.testing import LocalPool

from .cases import Case, sample
from .table import NOT_FOOTAGE, Outcome, Row, run_case

pytestmark = [pytest.mark.media, pytest.mark.slow, pytest.mark.timeout(300)]

SEED = 20
CASES = 16
FIRST = slice(CASES // 2)
"""The files that CI tests."""
LARGEST_BYTES = 600_000
CASES_AT_ONCE = 2


def _small(footage: Path) -> list[str]:
    files = [path for path in footage.iterdir() if path.name not in NOT_FOOTAGE]
    return [path.name for path in files if path.stat().st_size < LARGEST_BYTES]


async def _run(footage: Path, output: Path, cases: list[Case]) -> list[Row]:
    at_once = asyncio.Semaphore(CASES_AT_ONCE)
    async with Fleet(pool=LocalPool(CASES_AT_ONCE), jobs_at_once=CASES_AT_ONCE) as fleet:

        async def one(place: int) -> Row:
            async with at_once:
                return await run_case(fleet, cases[place], footage=footage, output=output)

        return list(await asyncio.gather(*map(one, range(len(cases)))))


@pytest.mark.parametrize(
    "part", [pytest.param(FIRST, marks=pytest.mark.ci), slice(CASES // 2, CASES)], ids=["first", "rest"]
)
def test_every_difference_is_named_by_a_warning_of_the_report(shared_media: Path, tmp_path: Path, part: slice) -> None:
    """With any file, container and sound, the warnings of the report explain every failed check."""
    cases = sample(_small(shared_media), CASES, SEED)[part]
    rows = asyncio.run(_run(shared_media, tmp_path, cases))
    assert len(rows) == CASES // 2
    assert not [(row.file, row.case, row.outcome, row.story) for row in rows if not row.outcome.is_right]
    assert any(row.declared for row in rows)
    assert any(row.outcome is Outcome.EXACT and not row.warnings for row in rows)
