"""A fleet whose jobs play a script, for tests of code that follows jobs: ``FakeFleet(sample_events(segments=3))``.

A job may end with an error, which is raised when the job is awaited, or run until it is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from fractions import Fraction
from typing import Any, Self

from ...errors import Cancelled
from ...jobs.report.events import Done, Event, Planned, Progress, SegmentFinished, SegmentStarted, StageStarted, Warned
from ...jobs.report.report import Proof, Report, SegmentReport, TrackReport, Warning_
from ...jobs.request.spec import TranscodeSpec

_FRAMES_PER_SEGMENT = 240
_FPS = 24
_STEPS = 4


class FakeJob:
    """A job that plays its script.

    Args:
        script: the events, in order. If one of them is a ``Done``, awaiting the job returns its report.
        error: raised when the job is awaited, once the events are over.
        hangs: whether the job, after the script, waits until it is cancelled.
    """

    def __init__(self, script: Sequence[Event], error: BaseException | None, *, hangs: bool) -> None:
        self.id = "job-1"
        self.cancelled = asyncio.Event()
        self.kept = False
        self._script = script
        self._error = error
        self._hangs = hangs

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the script; then end, or hang until cancelled."""
        for event in self._script:
            if self.cancelled.is_set():
                return
            await asyncio.sleep(0)
            yield event
        if self._hangs:
            await self.cancelled.wait()

    def __await__(self) -> Generator[Any, None, Report]:
        return self._result().__await__()

    async def _result(self) -> Report:
        if self._hangs:
            await self.cancelled.wait()
        if self.cancelled.is_set():
            raise Cancelled("the job was cancelled")
        if self._error is not None:
            raise self._error
        return next(event.report for event in self._script if isinstance(event, Done))

    async def cancel(self, *, keep: bool = False) -> None:
        """End the job; awaiting the job raises ``Cancelled``."""
        self.kept = keep
        self.cancelled.set()


class FakeFleet:
    """A fleet whose jobs all play the same script.

    Args:
        script: the events of a job.
        error: the error with which every job ends, instead of a report.
        hangs: whether jobs run until they are cancelled.
        starts: whether the fleet starts; if not, the start never ends.
        closes: whether the fleet closes; if not, the close never ends.
    """

    def __init__(
        self,
        script: Sequence[Event] = (),
        *,
        error: BaseException | None = None,
        hangs: bool = False,
        starts: bool = True,
        closes: bool = True,
    ) -> None:
        self.specs: list[TranscodeSpec] = []
        self.jobs: list[FakeJob] = []
        self.opened_with: tuple[str | None, int | None] | None = None
        self._script = script
        self._error = error
        self._hangs = hangs
        self._starts = starts
        self._closes = closes

    def open(self, address: str | None = None, workers: int | None = None) -> Self:
        """Record the arguments and return this fleet, in place of ``Fleet(address=..., workers=...)``."""
        self.opened_with = (address, workers)
        return self

    async def __aenter__(self) -> Self:
        if not self._starts:
            await asyncio.Event().wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._closes:
            await asyncio.Event().wait()

    async def transcode(self, spec: TranscodeSpec, *, keeps_record: bool = False) -> FakeJob:
        """Start a job that plays the script; ``keeps_record`` has no effect."""
        del keeps_record
        self.specs.append(spec)
        self.jobs.append(FakeJob(self._script, self._error, hangs=self._hangs))
        return self.jobs[-1]


def sample_report(*, segments: int = 3) -> Report:
    """Return the report of a small job, with one warning and no errors."""
    frames = segments * _FRAMES_PER_SEGMENT
    last_s = Fraction(frames - 1, _FPS)
    return Report(
        job="job-1",
        source="in.mkv",
        output="out.mp4",
        container="mp4",
        codec="h264",
        encoder_kind="libx264 preset=medium crf=23",
        width=1920,
        height=1080,
        pix_fmt="yuv420p",
        time_base=f"1/{_FPS}",
        duration_s=str(Fraction(frames, _FPS)),
        frames=frames,
        output_bytes=segments * 1_250_000,
        workers=2,
        segments=tuple(_segment_report(number) for number in range(segments)),
        tracks=(_track("video", 0, "encoded"), _track("audio", 1, "copied")),
        proof=Proof(
            frames_in=frames,
            frames_out=frames,
            first_pts_s="0",
            last_pts_s=str(last_s),
            seams=segments - 1,
            seams_equal=segments - 1,
            output_frames=frames,
            times_equal=True,
            output_sha256="5a" * 32,
        ),
        warnings=(
            Warning_(
                code="data-track-dropped",
                message="data track 2 (tmcd) cannot be carried in mp4",
                checks=("tracks.data",),
            ),
        ),
        timings_s={"startup": 2.5, "encode": 12.0, "total": 15.5},
        fps=frames / 12,
    )


def _segment_report(number: int) -> SegmentReport:
    first = number * _FRAMES_PER_SEGMENT
    return SegmentReport(
        segment=number,
        start_ticks=first,
        end_ticks=first + _FRAMES_PER_SEGMENT,
        cut_reason="access point off the regular grid",
        frames_in=_FRAMES_PER_SEGMENT,
        frames_out=_FRAMES_PER_SEGMENT,
        first_pts_ticks=first,
        last_pts_ticks=first + _FRAMES_PER_SEGMENT - 1,
        payload_bytes=1_200_000,
        payload_sha256=f"{number:02x}" * 32,
        damaged_packets=0,
        entry_moves=0,
        attempts=1,
        decode_s=1.0,
        encode_s=3.0,
        wall_s=4.0,
    )


def _track(kind: str, index: int, action: str) -> TrackReport:
    codec = "h264" if kind == "video" else "aac"
    track = {"kind": kind, "source_index": index, "codec": codec, "language": None}
    return TrackReport.model_validate({**track, "action": action, "output_codec": codec, "reason": "as asked"})


def sample_events(*, segments: int = 3, in_flight: int = 2) -> list[Event]:
    """Return the events of a job that runs ``in_flight`` segments at a time, and reports each segment several times."""
    report = sample_report(segments=segments)
    duration_s = Fraction(report.frames, _FPS)
    events: list[Event] = [Planned("job-1", 0.5, segments, report.frames, duration_s, "h264", "libx264", in_flight)]
    events.extend(Warned("job-1", 0.5, warning.code, warning.message, warning.checks) for warning in report.warnings)
    events.append(StageStarted("job-1", 0.6, "encode"))
    at_s = 1.0
    for first in range(0, segments, in_flight):
        events.extend(_group_events(range(first, min(first + in_flight, segments)), at_s, report.frames))
        at_s += _STEPS
    events.extend(StageStarted("job-1", at_s, stage) for stage in ("gather", "proof", "publish"))
    events.append(Done("job-1", at_s, report))
    return events


def _group_events(group: range, at_s: float, total: int) -> list[Event]:
    size = _FRAMES_PER_SEGMENT
    events: list[Event] = [
        SegmentStarted("job-1", at_s, number, Fraction(number * size, _FPS), size, 1) for number in group
    ]
    for step in range(1, _STEPS + 1):
        each = size * step // _STEPS
        done = group.start * size + each * len(group)
        running = tuple((number, each, size) for number in group)
        events.append(Progress("job-1", at_s + step, done, total, 60.0, (total - done) / 60, running))
    events.extend(SegmentFinished("job-1", at_s + _STEPS, number, size, 1_200_000, 4.0, "") for number in group)
    return events
