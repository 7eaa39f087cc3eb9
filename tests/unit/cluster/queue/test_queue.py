"""``Queue``: arguments that it refuses before it uses a store."""

from pathlib import Path

import pytest

from codecfleet.cluster.queue.queue import PRIORITY_MAX, Queue
from codecfleet.errors import UsageError


@pytest.mark.parametrize("options", [{"priority": PRIORITY_MAX + 1}, {"priority": -(1 << 70)}, {"job_id": "-a"}])
async def test_a_job_out_of_range_is_refused(options: dict[str, int | str], tmp_path: Path) -> None:
    """A priority that no store can hold, and an id that looks like an option, are errors of the caller."""
    async with Queue(tmp_path / "queue.sqlite", starts_driver=False) as queue:
        with pytest.raises(UsageError):
            await queue.submit(["probe", "film.mkv"], **options)
        job = await queue.submit(["probe", "film.mkv"], priority=-PRIORITY_MAX)
        with pytest.raises(UsageError):
            await queue.prioritize(job.job_id, PRIORITY_MAX + 1)
        assert [each.priority for each in await queue.list()] == [-PRIORITY_MAX]
