"""A job's events, and the estimate of the remaining time."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import Cancelled, CodecfleetError, InputNotFound, UsageError
from codecfleet.jobs.fleet import Fleet
from codecfleet.jobs.job import Job
from codecfleet.jobs.report.channel import EventChannel, JobEvents
from codecfleet.jobs.report.events import Event, Failed, Progress, StageStarted, Warned
from codecfleet.jobs.report.report import Report
from codecfleet.jobs.report.time_left import time_left_s
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.fake_fleet import sample_report

SPEC = TranscodeSpec(source="in.mkv", output="out.mp4")


def progress(frames: int) -> Progress:
    """Return a progress event."""
    return Progress("job", 0.0, frames, 100, 1.0, None, ())


async def received(channel: EventChannel) -> list[Event]:
    """Listen to the end."""
    return [event async for event in channel.listen()]


async def test_late_listeners_hear_the_whole_story() -> None:
    """A late listener gets every event except outdated progress."""
    channel = EventChannel()
    first, second = Warned("job", 0.0, "a", "first"), Warned("job", 0.0, "b", "second")
    for event in (first, *map(progress, range(1000)), second):
        await channel.send(event)
    await channel.close()
    assert await received(channel) == [first, progress(999), second]
    assert len(channel._events) == 3  # progress does not accumulate, however long the job runs


async def test_a_job_that_is_cancelled_before_it_begins_ends_for_its_listeners() -> None:
    """Listeners of a job cancelled before it begins hear once that it was cancelled."""

    async def run(_channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        raise AssertionError

    job = Job("job", SPEC, run)
    await job.cancel()
    await job.cancel()
    async with asyncio.timeout(10):
        (event,) = [event async for event in job.events()]
    assert isinstance(event, Failed)
    assert (event.job, event.error, event.exit_code) == ("job", "Cancelled", 130)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputNotFound("no file", "Check the path."), ("InputNotFound", "no file", "Check the path.", 3)),
        (KeyError("x"), ("KeyError", "'x'", "Report this error: it is a defect of codecfleet.", 5)),
    ],
)
async def test_the_last_event_says_why_a_job_failed(error: Exception, expected: tuple[object, ...]) -> None:
    """The last event has the same error as awaiting the job."""

    async def run(channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        await channel.send(progress(1))
        raise error

    job = Job("job", SPEC, run)
    *_, last = [event async for event in job.events()]
    assert isinstance(last, Failed)
    assert (last.error, last.message, last.next_step, last.exit_code) == expected
    with pytest.raises(type(error)):
        await job


@pytest.mark.parametrize(
    ("source", "output", "error"), [("gone.mkv", "out.mp4", "InputNotFound"), ("in.mkv", "out.webm", "Unsupported")]
)
async def test_a_job_that_cannot_begin_ends_with_failed(tmp_path: Path, source: str, output: str, error: str) -> None:
    """A missing input, and a codec that the container cannot hold, end with ``failed`` like any failure."""
    make_clip(tmp_path / "in.mkv", Clip(times=constant_times(3)))
    spec = TranscodeSpec(source=tmp_path / source, output=tmp_path / output, codec="h264")
    async with Fleet(pool=LocalPool(1)) as fleet:
        job = await fleet.transcode(spec)
        *_, last = [event async for event in job.events()]
        assert isinstance(last, Failed)
        assert last.error == error
        with pytest.raises(CodecfleetError, match=re.escape(last.message)):
            await job


async def test_a_second_cancel_waits_for_the_first_ones_clean_up() -> None:
    """A second cancellation does not interrupt the clean-up of the first."""
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
    """The text of a job has its name, its files and its state."""

    async def run(_channel: EventChannel, _keeps: Callable[[], bool]) -> Report:
        await asyncio.Event().wait()
        raise AssertionError

    job = Job("1a2b", SPEC, run)
    assert repr(job) == "<Job 1a2b: in.mkv -> out.mp4, running>"
    await job.cancel()
    assert repr(job) == "<Job 1a2b: in.mkv -> out.mp4, cancelled>"


async def test_times_of_events_count_from_the_channels_beginning() -> None:
    """A job that waited for its turn and the error that ends it count from the same moment, its submission."""
    now_s = [100.0]
    channel = EventChannel(lambda: now_s[0])
    now_s[0] = 130.0
    events = JobEvents("job", channel)
    now_s[0] = 131.5
    await events.emit(StageStarted, stage="index")
    await channel.close()
    assert [event.at_s for event in await received(channel)] == [31.5]


async def test_a_stage_is_told_before_its_work_and_timed() -> None:
    """A stage is an event when it begins, and its duration is recorded under the same name."""
    channel = EventChannel()
    events = JobEvents("job", channel)

    async def work() -> int:
        return len(channel._events)

    assert await events.timed("index", work()) == 1
    assert list(events.stages_s) == ["index"]
    await channel.close()
    assert [event.stage for event in await received(channel) if isinstance(event, StageStarted)] == ["index"]


@pytest.mark.parametrize("options", [{"workers": 0}, {"jobs_at_once": 0}])
def test_a_fleet_of_nothing_is_refused(options: dict[str, int]) -> None:
    """A fleet without workers or without jobs at a time is refused, since it would wait forever."""
    with pytest.raises(UsageError, match="at least one"):
        Fleet(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("elapsed_s", "done", "left", "expected_s"),
    [
        (10, 0, 5, None),
        (10, 2, 4, 20),
        (10, 0, 0, 0),
        (5, 1, 1_220_000, None),
        (10, 1, 200, None),
        (61, 1, 200, 12_200),
        (61, 1, 2000, None),
    ],
)
def test_the_time_left_follows_the_pace(elapsed_s: float, done: int, left: int, expected_s: float | None) -> None:
    """If nothing is left, the estimate is 0; if too little is done, it is unknown."""
    assert time_left_s(elapsed_s, done=done, left=left) == expected_s


@given(st.floats(0, 1e6), st.floats(0, 1e12), st.floats(0, 1e12))
def test_no_time_left_is_absurd(elapsed_s: float, done: float, left: float) -> None:
    """The estimate is at most a thousand times the elapsed time, a hundred times in the first minute."""
    found_s = time_left_s(elapsed_s, done=done, left=left)
    assert found_s is None or 0 <= found_s <= elapsed_s * (100 if elapsed_s < 60 else 1000)


@pytest.mark.parametrize(
    ("encoder", "decoders", "cores_and_gpus"),
    [
        ("libx264 164 crf=23", ("software", "software"), (8.0, 0.0)),
        ("libx264 164 crf=23", ("software", "nvdec"), (8.0, 4.0)),
        ("hevc_nvenc PyNvVideoCodec-2.0", ("software", "nvdec"), (4.0, 8.0)),
    ],
)
def test_a_report_says_what_its_output_took(
    encoder: str, decoders: tuple[str, str], cores_and_gpus: tuple[float, float]
) -> None:
    """Each segment of four seconds counts for what decoded and encoded it."""
    report = sample_report(segments=2)
    segments = [
        each.model_copy(update={"decoded_by": name}) for each, name in zip(report.segments, decoders, strict=True)
    ]
    report = report.model_copy(update={"encoder_kind": encoder, "segments": tuple(segments)})
    assert report.used == (*cores_and_gpus, report.output_bytes)
