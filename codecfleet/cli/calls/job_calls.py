"""The calls of jobs and batches, and of what they have left unfinished. Imports happen in the calls."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from .answers import Answer, BatchLike, FleetLike

if TYPE_CHECKING:
    from ...jobs.batch.preview import Intended, Preview
    from ...jobs.request.spec import BatchSpec, TranscodeSpec
    from ...jobs.stills.spec import StillsSpec


def open_fleet(address: str | None, workers: int | None) -> AbstractAsyncContextManager[FleetLike]:
    """Open a fleet at an address, with this many workers."""
    from ...jobs.fleet import Fleet

    return Fleet(address=address, workers=workers)


@asynccontextmanager
async def open_batch(spec: "BatchSpec", address: str | None) -> "AsyncIterator[BatchLike]":
    """Open a fleet at an address, and begin a batch on it."""
    from ...jobs.fleet import Fleet

    async with Fleet(address=address, workers=spec.workers) as fleet:
        yield fleet.batch(spec)


def preview_batch(spec: "BatchSpec", address: str | None, show: "Callable[[Intended], object]") -> "Preview":
    """Return what a batch would do, and show each file as it is looked at."""
    import asyncio

    from ...jobs.fleet import Fleet

    async def look() -> "Preview":
        async with Fleet(address=address, workers=spec.workers) as fleet:
            return await fleet.preview_batch(spec, show)

    return asyncio.run(look())


def batch_page(spec: "BatchSpec") -> str:
    """Return the page of a batch's last run."""
    from ...console.page import batch_page as page_of
    from ...jobs.batch.figures import read_figures
    from ...jobs.batch.run import database_path

    return page_of(read_figures(database_path(spec.resolved())))


def probe(source: str) -> Answer:
    """Say what is in a file."""
    from ...jobs.probe.job import probe as probe_source

    found = probe_source(source)
    return Answer(list(found.lines()), found.model_dump(mode="json"))


def unfinished_spec(work: str) -> "TranscodeSpec":
    """Return the request of the job whose work lies there."""
    from ...jobs.journal.found_work import unfinished_spec as spec_at

    return spec_at(work)


def jobs(action: str, place: str) -> Answer:
    """List, show or remove unfinished work."""
    from ...console.work_text import work_lines, work_rows
    from ...jobs.journal.found_work import find_work, remove_work, work_at

    if action == "show":
        work = work_at(place)
        return Answer(work_lines(work), {"schema": 1, "jobs": [work.to_json()]})
    if action == "clean":
        removed, kept = remove_work(place)
        lines = [f"removed {each}" for each in removed] + [f"in use, or another user's: {each}" for each in kept]
        return Answer(lines or ["nothing to remove"], {"schema": 1, "removed": removed, "in_use": kept})
    found = find_work(place)
    return Answer(work_rows(found), {"schema": 1, "jobs": [each.to_json() for each in found]})


def stills(spec: "StillsSpec", address: str | None, progress: Callable[[int], None]) -> Answer:
    """Take stills on the cluster at an address, None for the environment's."""
    import asyncio

    from ...jobs.fleet import run_stills

    report = asyncio.run(run_stills(spec, address, progress))
    return Answer(report.lines(), report.to_json())
