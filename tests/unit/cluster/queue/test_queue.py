"""``Queue``: arguments that it refuses before it uses a store."""

from pathlib import Path

import pytest

from codecfleet.cluster.queue.places import queue_option
from codecfleet.cluster.queue.queue import PRIORITY_MAX, Queue
from codecfleet.errors import CodecfleetError, UsageError


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


async def test_a_queue_without_tokens_ignores_a_token(tmp_path: Path) -> None:
    """A token for the team's queue leaves a local one to its owner, whose name counts."""
    async with Queue(tmp_path / "queue.sqlite", starts_driver=False) as queue:
        mine = await queue.submit(["probe", "film.mkv"])
        other = await queue.submit(["probe", "film.mkv"], token="cfq-0")  # noqa: S106
        assert (other.tenant, bool(mine.tenant)) == (mine.tenant, True)
        named = await queue.submit(["probe", "film.mkv"], token="cfq-0", tenant="films")  # noqa: S106
        assert named.tenant == "films"


async def test_commands_that_help_name_the_queue(tmp_path: Path) -> None:
    """If it was named: they can be pasted."""
    place = str(tmp_path / "a queue.sqlite")
    async with Queue(place, starts_driver=False) as queue:
        await queue.submit(["probe", "film.mkv"], job_id="a")
        asked = [
            (queue.get("b"), "list"),
            (queue.submit(["probe", "other.mkv"], job_id="a"), "show a"),
            (queue.submit(["probe", "film.mkv"], queued_max=1), "list"),
        ]
        for ask, command in asked:
            with pytest.raises(CodecfleetError) as caught:
                await ask
            assert f"`codecfleet jobs {command} --queue '{place}'`" in caught.value.next_step


@pytest.mark.parametrize(
    ("place", "option"),
    [
        (None, ""),
        ("jobs of mine.sqlite", " --queue 'jobs of mine.sqlite'"),
        ("postgresql://queue@db/films", " --queue postgresql://queue@db/films"),
        ("postgresql://queue:se/c#r@et@db:5432/films", " --queue 'postgresql://queue:***@db:5432/films'"),
    ],
)
def test_the_option_that_names_a_queue_has_no_password(place: str | None, option: str) -> None:
    """A password may have any character, even one that should have been escaped."""
    assert queue_option(place) == option
