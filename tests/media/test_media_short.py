import asyncio
from pathlib import Path

import pytest

from codecfleet.jobs.fleet import Fleet

from .cases import SHORT
from .table import Row, run_case

pytestmark = [pytest.mark.media, pytest.mark.ray, pytest.mark.timeout(300)]

CASES_AT_ONCE = 2


@pytest.fixture(scope="module")
def rows(shared_media: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """The table's rows, by what each case stands for, from one fleet that ran them all."""
    return asyncio.run(_run_all(shared_media, tmp_path_factory.mktemp("outputs")))


async def _run_all(footage: Path, output: Path) -> dict[str, Row]:
    at_once = asyncio.Semaphore(CASES_AT_ONCE)
    async with Fleet(workers=CASES_AT_ONCE) as fleet:

        async def one(subject: str) -> Row:
            async with at_once:
                return await run_case(fleet, SHORT[subject], footage=footage, output=output)

        return dict(zip(SHORT, await asyncio.gather(*map(one, SHORT)), strict=True))


@pytest.mark.parametrize("subject", SHORT)
def test_outputs_are_exact_or_rightly_refused(rows: dict[str, Row], subject: str) -> None:
    """Whatever is odd about the source, the proof holds; where no output can be made, the refusal is the right one."""
    row = rows[subject]
    assert row.outcome.is_right, f"{row.file} -> {row.case}: {row.outcome} {row.story} {row.failures}"


@pytest.mark.parametrize("subject", ["open GOP with recovery points", "interlaced transport stream with captions"])
def test_cuts_were_really_made(rows: dict[str, Row], subject: str) -> None:
    """The short form proves seams, not just single segments."""
    assert rows[subject].segments > 2
