"""One job: from a spec to a published file. The async shell around the plan, the board, the spool and the gather.

Decisions are made elsewhere: what to run next and when to join in ``board``, where to cut in ``plan``, what is right in
``proof``. This module only carries facts in and effects out.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..actors.audio import EncodedTrack
from ..actors.segment import EncodedSegment
from ..cluster.pool import Pool
from ..errors import Cancelled, CodecfleetError, InputDamaged, Retry
from .board import ATTEMPTS, Board, Effect, Fail, Finished, Join, Lost, Run, decide, start_next
from .channel import EventChannel
from .events import Done, Event, Planned, Progress, SegmentFinished, SegmentStarted, Warned
from .gather import Gather, JoinedTrack
from .placing import check_device, demand_of
from .plan import Plan, check_request, plan_transcode
from .proof import check_manifest, prove
from .publish import check_output, publish, work_folder
from .rate_guard import RateGuard
from .report import Proof, Report, Warning_
from .reporting import damage_warnings, make_report
from .source import SourceStamp
from .spec import TranscodeSpec
from .spool import Spool, SpooledSegment
from .threads import come_what_may, heard, in_thread, to_its_end

__all__ = ["Job", "JobRun"]

PROGRESS_INTERVAL_S = 0.25
WAITING_S = 5.0
"""A job that has had no worker for this long says why."""

ResultT = TypeVar("ResultT")


class Job:
    """A job that was submitted: await it for its report, listen to its events, or cancel it."""

    def __init__(self, job: str, spec: TranscodeSpec, run: "Callable[[EventChannel], Awaitable[Report]]") -> None:
        self.id = job
        self.spec = spec
        self._channel = EventChannel()
        self._cancelling = False
        self._task = asyncio.create_task(self._run(run), name=f"codecfleet {job}")

    async def _run(self, run: "Callable[[EventChannel], Awaitable[Report]]") -> Report:
        try:
            return await run(self._channel)
        finally:
            await self._channel.close()

    def on_end(self, call: "Callable[[Job], None]") -> None:
        """Have ``call`` called with this job once it has ended."""
        self._task.add_done_callback(lambda _: call(self))

    def events(self) -> AsyncIterator[Event]:
        """Yield everything that happened and happens, from the start; ends when the job ends, however it does."""
        return self._channel.listen()

    async def cancel(self) -> None:
        """Stop the job: its work is cancelled, its files are removed. Returns when that is done. Idempotent."""
        # Once: a second cancellation would break into the clean-up of the first.
        if not self._cancelling:
            self._cancelling = True
            self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def done(self) -> bool:
        """Whether the job has ended, however it did."""
        return self._task.done()

    def __await__(self) -> Generator[Any, None, Report]:
        """Wait for the report.

        Raises:
            CodecfleetError: the job failed; ``Cancelled`` if it was cancelled.
        """
        return self._result().__await__()

    async def _result(self) -> Report:
        # Shielded: giving up waiting is not cancelling.
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                message = f"job {self.id} was cancelled"
                raise Cancelled(message) from None
            raise


class JobRun:
    """The running of one job. Used once."""

    def __init__(self, job: str, spec: TranscodeSpec, pool: Pool, channel: EventChannel) -> None:
        self._job = job
        self._spec = spec
        self._pool = pool
        self._channel = channel
        self._began = time.monotonic()
        self._stages_s: dict[str, float] = {}
        self._runs: dict[asyncio.Task[EncodedSegment], Run] = {}
        self._spooled: dict[int, SpooledSegment] = {}
        self._latest: dict[int, Run] = {}
        self._joins: asyncio.Queue[tuple[int, int | None] | None] = asyncio.Queue()
        self._joined: list[int] = []
        self._late_warnings: list[Warning_] = []
        self._workers = 1
        self._said_waiting = ""
        self._stamp = SourceStamp(spec.source, None)

    async def run(self) -> Report:
        """Do everything; leave either the complete output or nothing.

        Raises:
            CodecfleetError: the job failed.
            asyncio.CancelledError: it was cancelled.
        """
        spec = self._spec
        await in_thread(check_output, spec.source, spec.output, overwrite=spec.overwrite)
        self._stamp = await in_thread(SourceStamp.of, spec.source)
        await in_thread(check_request, spec)
        # Workers start while the source is read; whatever is plainly wrong was refused before they were asked for.
        start = asyncio.create_task(self._pool.start())
        start.add_done_callback(heard)
        plan = await self._staged("plan", in_thread(plan_transcode, spec))
        await self._staged("startup", asyncio.shield(start))
        demand = demand_of(plan, self._job)
        check_device(demand, self._pool.never)
        self._workers = spec.workers or self._pool.slots
        await self._say_plan(plan)
        spool = Spool(work_folder(spec.output, self._job))
        try:
            await to_its_end(spool.open)
            return await self._work(plan, spool)
        except Exception:
            # Whatever else went wrong, a source that changed explains it.
            await in_thread(self._stamp.check)
            raise
        finally:
            # The files must go even while the job is being cancelled.
            await asyncio.shield(in_thread(spool.remove))

    async def _work(self, plan: Plan, spool: Spool) -> Report:
        path = spool.folder / f"output.{plan.container.name}"
        try:
            async with asyncio.TaskGroup() as group:
                reporter = group.create_task(self._report_progress(plan))
                audio = group.create_task(self._encode_audio(plan))
                join = group.create_task(self._join_all(plan, path, audio, spool))
                await self._staged("encode", self._encode_all(plan, spool))
                self._joins.put_nowait(None)
                joined = await self._staged("gather", _settled(join))
                reporter.cancel()
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from None
        segments = [self._spooled[number] for number in self._joined]
        proof = await self._staged("proof", in_thread(prove, path, plan.container, segments, joined))
        return await self._publish(plan, path, segments, proof)

    async def _encode_all(self, plan: Plan, spool: Spool) -> None:
        """Run the board until every segment is joined, or one cannot be helped."""
        board = Board.of([segment.frames for segment in plan.segments])
        demand = demand_of(plan, self._job)
        try:
            while not board.is_done:
                self._pool.expect(replace(demand, segments=board.frames_left))
                slots = self._pool.slots_for(self._job)
                board, runs = start_next(board, min(slots, self._spec.workers or slots))
                for run in runs:
                    await self._start(plan, run)
                for task in await self._next(slots):
                    board, effects = decide(board, await self._fact(plan, task, spool))
                    self._apply(plan, board, effects)
        finally:
            self._pool.forget(self._job)
            for task in self._runs:
                task.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)

    async def _next(self, slots: int) -> set[asyncio.Task[EncodedSegment]]:
        """Wait until runs have ended, which are returned, or the pool has more slots for the job than it had."""
        more = asyncio.create_task(self._pool.more_slots(self._job, slots))
        try:
            patience_s = None if self._runs else WAITING_S
            done, _ = await asyncio.wait({*self._runs, more}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await self._say_waiting()
            if more in done:
                more.result()
            return {task for task in self._runs if task in done}
        finally:
            more.cancel()

    async def _say_waiting(self) -> None:
        reason = self._pool.waits_for(self._job)
        if reason and reason != self._said_waiting:
            self._said_waiting = reason
            await self._say(Warned, code="waiting", message=f"no worker yet: {reason}")

    async def _start(self, plan: Plan, run: Run) -> None:
        work = plan.work(self._job, run.segment, run.until, run.entry_moves)
        self._runs[asyncio.create_task(self._pool.submit(work), name=work.label)] = run
        planned = plan.segments[run.segment]
        frames = sum(segment.frames for segment in plan.segments[run.segment : run.until + 1])
        start_s = plan.relative_s(planned.start_ticks)
        await self._say(SegmentStarted, segment=run.segment, start_s=start_s, frames=frames, attempt=run.attempt)

    async def _fact(self, plan: Plan, task: asyncio.Task[EncodedSegment], spool: Spool) -> Finished | Lost:
        """Turn a finished run into a fact for the board; the payload is on disk before anybody hears of it."""
        run = self._runs.pop(task)
        try:
            result = task.result()
        except CodecfleetError as error:
            return Lost(run.segment, error)
        await in_thread(self._stamp.check)
        if self._spec.strict and result.damaged:
            message = f"{self._spec.source} is damaged around segment {run.segment}"
            raise InputDamaged(message, "Leave out --strict to encode what can be decoded.")
        earlier = self._spooled.get(run.segment)
        self._spooled[run.segment] = await to_its_end(spool.put, result, run.attempt)
        self._latest[run.segment] = run
        if earlier is not None:
            spool.drop(earlier)
        await self._say(
            SegmentFinished,
            segment=run.segment,
            frames=result.frames_out,
            payload_bytes=self._spooled[run.segment].payload_bytes,
            wall_s=result.wall_s,
        )
        entry = plan.work(self._job, run.segment, run.until, run.entry_moves).decode.entry
        return Finished(
            run.segment,
            run.until,
            result.seam_before,
            result.seam_after,
            at_start=entry is None,
            sound=plan.index.is_sound(entry, result.first_damaged_packet),
        )

    def _apply(self, plan: Plan, board: Board, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fail):
                raise effect.error
            if isinstance(effect, Join):
                right = board.right_of(board.slots[effect.segment])
                following = None if right is None else self._begin_ticks(plan, right.segment)
                self._joins.put_nowait((effect.segment, following))

    def _begin_ticks(self, plan: Plan, segment: int) -> int | None:
        """Return when a segment's first picture is shown; where it holds none, when it was planned to begin."""
        first = self._spooled[segment].facts.first_ticks
        return plan.segments[segment].start_ticks if first is None else first

    async def _encode_audio(self, plan: Plan) -> dict[int, EncodedTrack]:
        """Encode the tracks that cannot be copied, each as a whole, beside the segments."""
        start_s, end_s = plan.clock_s(self._spec.start_s), plan.clock_s(self._spec.end_s)
        works = plan.carry.audio_works(self._job, self._spec.source, start_s=start_s, end_s=end_s)
        tracks = await asyncio.gather(*(_with_retries(partial(self._pool.submit, work)) for work in works.values()))
        return dict(zip(works, tracks, strict=True))

    async def _join_all(
        self, plan: Plan, path: Path, audio: asyncio.Task[dict[int, EncodedTrack]], spool: Spool
    ) -> JoinedTrack:
        """Join segments as the board releases them; the last word is None."""
        gather = Gather(plan, path, await audio)
        guard = RateGuard(plan)
        try:
            while (join := await self._joins.get()) is not None:
                segment, following = join
                while not guard.judge(self._spooled[segment].facts, following):
                    await self._encode_again(plan, segment, guard, spool)
                await to_its_end(gather.join, self._spooled[segment], following)
                spool.drop(self._spooled[segment])
                self._joined.append(segment)
            runs = [self._latest[number] for number in self._joined]
            check_manifest([self._spooled[number] for number in self._joined], runs, len(plan.segments))
            joined = await to_its_end(gather.finish)
        except BaseException:
            gather.abandon()
            raise
        self._late_warnings += [*guard.warnings(), *gather.warnings]
        return joined

    async def _encode_again(self, plan: Plan, segment: int, guard: RateGuard, spool: Spool) -> None:
        """Encode a segment anew that the rate guard turned down."""
        run = self._latest[segment]
        work = guard.again(plan.work(self._job, run.segment, run.until, run.entry_moves))
        result = await _with_retries(lambda: self._pool.submit(work))
        self._latest[segment] = replace(run, attempt=run.attempt + 1)
        earlier = self._spooled[segment]
        self._spooled[segment] = await to_its_end(spool.put, result, run.attempt + 1)
        spool.drop(earlier)

    async def _publish(self, plan: Plan, path: Path, segments: list[SpooledSegment], proof: Proof) -> Report:
        spec = self._spec
        warnings = [*plan.warnings, *damage_warnings(plan, segments), *self._late_warnings]
        warnings += [Warning_(code="runtime", message=note) for note in self._pool.notes]
        for warning in warnings[len(plan.warnings) :]:
            await self._say(Warned, code=warning.code, message=warning.message)
        size = await in_thread(lambda: path.stat().st_size)
        await in_thread(self._stamp.check)
        await self._staged("publish", come_what_may(publish, path, spec.output, overwrite=spec.overwrite))
        report = make_report(
            plan=plan,
            job=self._job,
            runs=[self._latest[number] for number in self._joined],
            segments=segments,
            proof=proof,
            warnings=tuple(warnings),
            stages_s=self._stages_s | {"total": self._elapsed_s()},
            output_bytes=size,
            workers=self._workers,
        )
        await self._say(Done, report=report)
        return report

    async def _say_plan(self, plan: Plan) -> None:
        await self._say(
            Planned,
            segments=len(plan.segments),
            frames=plan.frames,
            duration_s=plan.duration_s,
            codec=plan.encoder.codec.value,
            encoder=plan.encoder.implementation,
            workers=self._workers,
        )
        for warning in plan.warnings:
            await self._say(Warned, code=warning.code, message=warning.message)

    async def _report_progress(self, plan: Plan) -> None:
        """Say a few times a second where the job stands, from what the workers report."""
        began_s, done = self._elapsed_s(), 0
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            by_label = await self._pool.progress(self._job)
            running = [(run, by_label.get(f"segment {run.segment}", 0)) for run in self._runs.values()]
            finished = sum(s.facts.frames_out for n, s in self._spooled.items() if n not in self._running_segments())
            done = max(done, min(plan.frames, finished + sum(frames for _, frames in running)))
            elapsed_s = self._elapsed_s() - began_s
            fps = done / elapsed_s if elapsed_s > 0 else 0.0
            await self._say(
                Progress,
                frames_done=done,
                frames_total=plan.frames,
                fps=fps,
                eta_s=(plan.frames - done) / fps if fps else None,
                running=tuple((run.segment, frames, plan.segments[run.segment].frames) for run, frames in running),
            )

    def _running_segments(self) -> set[int]:
        return {run.segment for run in self._runs.values()}

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    async def _say(self, kind: type[Event], **fields: Any) -> None:  # noqa: ANN401 - each event's own fields
        await self._channel.send(kind(job=self._job, at_s=round(self._elapsed_s(), 3), **fields))

    async def _staged(self, stage: str, work: Awaitable[ResultT]) -> ResultT:
        began = time.monotonic()
        result = await work
        self._stages_s[stage] = round(time.monotonic() - began, 4)
        return result


async def _with_retries(submit: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Submit work until it succeeds, its error says that no retry can help, or it has failed too often."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await submit()
        except CodecfleetError as error:
            if error.retry is Retry.NEVER:
                raise
    return await submit()


async def _settled(task: asyncio.Task[ResultT]) -> ResultT:
    return await task


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a group of tasks: ours before foreign ones, and never a follower's cancellation."""
    flat = [e for e in _flatten(group) if not isinstance(e, asyncio.CancelledError)]
    ours = [e for e in flat if isinstance(e, CodecfleetError)]
    return (ours or flat or [asyncio.CancelledError()])[0]


def _flatten(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _flatten(inner)
    else:
        yield error
