import asyncio
from collections.abc import Callable

import pytest

from codecfleet.errors import Cancelled, UsageError
from codecfleet.jobs.fleet import Fleet, transcode
from codecfleet.jobs.job import Job
from codecfleet.jobs.report.channel import EventChannel, JobEvents
from codecfleet.jobs.report.events import Event, Progress, StageStarted, Warned
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.request.spec import TranscodeSpec

SPEC = TranscodeSpec(source="in.mkv", output="out.mp4")


def progress(frames: int) -> Progress:
    """Return a progress event."""
    return Progress("job", 0.0, frames, 100, 1.0, None, ())


async def received(channel: EventChannel) -> list[Event]:
    """Listen to the end."""
    return [event async for event in channel.listen()]


async def test_late_listeners_hear_the_whole_story() -> None:
    """A late listener gets every event, and of the progress only what was not overtaken."""
    channel = EventChannel()
    first, second = Warned("job", 0.0, "a", "first"), Warned("job", 0.0, "b", "second")
    for event in (first, *map(progress, range(1000)), second):
        await channel.send(event)
    await channel.close()
    assert await received(channel) == [first, progress(999), second]


async def test_progress_does_not_pile_up() -> None:
    """A channel keeps one progress event in a row, however long the job runs."""
    channel = EventChannel()
    for number in range(1000):
        await channel.send(progress(number))
    assert len(channel._events) == 1


async def test_a_job_that_is_cancelled_before_it_begins_ends_for_its_listeners() -> None:
    """Who listens hears nothing, and that nothing follows."""

    async def run(_channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        raise AssertionError

    job = Job("job", SPEC, run)
    await job.cancel()
    async with asyncio.timeout(10):
        assert [event async for event in job.events()] == []


async def test_a_second_cancel_waits_for_the_first_ones_clean_up() -> None:
    """Cancelling twice does not break into the clean-up."""
    cleaned, proceed = [], asyncio.Event()

    async def run(channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        try:
            await asyncio.Event().wait()
        finally:
            await proceed.wait()
            cleaned.append(channel)
        raise AssertionError

    job = Job("job", SPEC, run)
    await asyncio.sleep(0)
    first, second = asyncio.create_task(job.cancel()), asyncio.create_task(job.cancel())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    assert not second.done()
    proceed.set()
    await asyncio.gather(first, second)
    assert len(cleaned) == 1
    with pytest.raises(Cancelled):
        await job


async def test_a_job_shows_what_it_is() -> None:
    """The text of a job has its name, its files and whether it runs."""

    async def run(_channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        await asyncio.Event().wait()
        raise AssertionError

    job = Job("1a2b", SPEC, run)
    assert repr(job) == "<Job 1a2b: in.mkv -> out.mp4, running>"
    await job.cancel()
    assert repr(job) == "<Job 1a2b: in.mkv -> out.mp4, cancelled>"


async def test_a_stage_is_told_before_its_work_and_timed() -> None:
    """A stage is an event when it begins, and its seconds are kept under the same name."""
    channel = EventChannel()
    events = JobEvents("job", channel)

    async def work() -> int:
        return len(channel._events)

    assert await events.timed("index", work()) == 1
    assert list(events.stages_s) == ["index"]
    await channel.close()
    assert [event.stage for event in await received(channel) if isinstance(event, StageStarted)] == ["index"]


async def test_waiting_calls_are_refused_inside_an_event_loop() -> None:
    """``transcode`` cannot wait where a loop runs, and says what to use instead."""
    with pytest.raises(UsageError, match="event loop"):
        transcode("in.mkv", "out.mp4")


@pytest.mark.parametrize("options", [{"workers": 0}, {"jobs_at_once": 0}])
def test_a_fleet_of_nothing_is_refused(options: dict[str, int]) -> None:
    """No workers, or no jobs at a time, would wait forever."""
    with pytest.raises(UsageError, match="at least one"):
        Fleet(**options)  # type: ignore[arg-type]
