"""Encodes and joins one planned track, carrying out the decisions of ``board`` and ``proof``."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...actors.decode.decoding import SOFTWARE
from ...actors.segment.encoding import EncodedSegment, EncodeSegment, segment_facts
from ...actors.task_owner import TaskOwner
from ...actors.tracing import span
from ...actors.tracks.audio import EncodedTrack
from ...cluster.fleet.pool import Pool
from ...cluster.logs.actions import LogAction
from ...cluster.logs.entry import LogIds
from ...cluster.logs.writing import log
from ...cluster.placement.rates import usual_fps
from ...cluster.worker_names import WorkerId
from ...errors import Cancelled, CodecfleetError, EncoderFailed, InputDamaged, SegmentFailed, WorkerLost
from ..board.board import Board, restored
from ..board.events import Finished, Lost, Run
from ..board.loop import BoardLoop, PoolCapacity, WorkerWait, finished
from ..board.reach import SourceReach
from ..board.segment import SegmentState
from ..board.threads import in_thread, shielded
from ..board.watch import WorkWatch, with_retries
from ..carry.track_plan import SoundKey
from ..join.gather import Gather
from ..join.proof import check_manifest, miscounted
from ..join.rate_guard import RateGuard
from ..join.spool import SpooledSegment
from ..join.video_track import JoinedTrack
from ..journal.records import Begun, Encoded, OtherBytes
from ..journal.work import WorkPlace
from ..plan.placing import settled_demand
from ..plan.plan import Plan
from ..rate.passes import ADJUST, FILM, SAMPLE, RatePass, run_passes
from ..report.channel import JobEvents
from ..report.events import Progress, SegmentFinished, SegmentStarted, Warned
from ..report.time_left import time_left_s
from ..source.source import SourceStamp
from .delivered import DeliveredSegments
from .evidence import save_evidence
from .other_size import guessed_bytes, joined_other_bytes
from .rate_ledger import RateLedger
from .reporting import WORKER_LOST, FinishedTrack, loss_warnings, second_run_warnings

if TYPE_CHECKING:
    from ...actors.tracks.loudness import Loudness
    from ..rate.allocation import SizeBudget
    from ..report.report import Warning_


class TrackRun:
    """Encodes and joins one plan whose encoder is chosen. Use an instance only once.

    The source must match ``stamp``. ``work`` must be open; it holds spooled segments and the joined file.
    """

    def __init__(
        self, job: str, plan: Plan, pool: Pool, *, events: JobEvents, stamp: SourceStamp, work: WorkPlace
    ) -> None:
        self._job = job
        self._plan = plan
        self._events = events
        self._stamp = stamp
        self._files = work
        demand = settled_demand(plan, job)
        self._watch = WorkWatch(
            pool,
            plan.spec,
            start_fps=usual_fps(demand),
            on_hang=self._say_hang,
            on_loss=self._say_loss,
            bind=SourceReach(pool, stamp, plan.spec.ship).bind,
        )
        self._hangs = 0
        self._lost_on: list[WorkerId] = []
        self._capacity = PoolCapacity(
            pool, demand, plan.spec.workers, WorkerWait(pool, job, plan.spec, events.emit_waiting)
        )
        self._rate = RateLedger(plan.rate_goal)
        self._board = self._loop(self._new_board())
        self._second_runs: list[str] = []
        self._budget: SizeBudget | None = None
        self._delivered = DeliveredSegments(work.spool)
        self._joins: asyncio.Queue[tuple[int, int | None] | None] = asyncio.Queue()
        self._joined: list[int] = []
        self._warnings: tuple[Warning_, ...] = ()
        self._frames_restored = 0
        self._frames_done = 0
        self._encoding_began_s = 0.0
        self._loudness: dict[SoundKey, Loudness] = {}

    def restore(self, found: Iterable[Encoded]) -> None:
        """Start with the segments of an earlier run.

        Raises InputDamaged: ``strict`` is set, and a segment is damaged.
        """
        results = []
        for each in found:
            run = Run(each.segment, each.until, each.entry_moves, each.attempt)
            self._check_damage(run, each.facts)
            self._delivered.restore(run, self._files.spooled(each))
            self._rate.restore(each)
            results.append((run, self._finished(run, each.facts)))
        self._frames_restored = self._delivered.frames(without=())
        if self._rate.goal is not None:
            return  # each pass takes its finished segments from the ledger
        self._board.board, joins = restored(self._board.board, results)
        for segment in joins:
            self._queue_join(self._board.board, segment)

    async def run(self) -> FinishedTrack:
        """Encode and join everything. Raises CodecfleetError: a segment or the join failed."""
        path = self._files.spool.folder / f"output.{self._plan.container.name}"
        try:
            async with TaskOwner() as owner:
                self._encoding_began_s = self._events.elapsed_s
                owner.start(self._watch.run(), "watch")
                owner.start(self._board.report(self._report), "progress")
                audio = owner.start(self._encode_audio(), "sound")
                join = owner.start(self._join_all(path, audio), "join")
                await self._events.timed("encode", self._encode(audio))
                self._joins.put_nowait(None)
                joined = await self._events.timed("gather", join)
        except SegmentFailed as error:
            raise await self._with_evidence(error) from None
        return FinishedTrack(
            path=path,
            joined=joined,
            segments=tuple(self._delivered.spooled[number] for number in self._joined),
            restored=self._delivered.restored(self._joined),
            runs=tuple(self._delivered.runs[number] for number in self._joined),
            warnings=(
                *self._warnings,
                *second_run_warnings("; ".join(filter(None, self._second_runs)), self._hangs),
                *loss_warnings(self._lost_on),
            ),
            loudness=self._loudness,
            budget=self._budget,
            tries=self._rate.tries,
        )

    def _new_board(self) -> Board:
        plan = self._plan
        may_fall_back = not (plan.spec.strict and plan.spec.device == "gpu")
        return Board.of([segment.frames for segment in plan.segments], may_fall_back=may_fall_back)

    def _loop(self, board: Board) -> BoardLoop[EncodedSegment]:
        return BoardLoop(
            board, self._capacity, work=self._work, accept=self._accept, join=self._release, watch=self._watch
        )

    async def _encode(self, audio: asyncio.Task[dict[tuple[int, int], EncodedTrack]]) -> None:
        goal = self._rate.goal
        if goal is None:
            await self._run_board()
            return
        # For a size, the film is joined between passes; meanwhile the job demands no worker.
        with self._capacity.held() if goal.size_bytes is None else nullcontext():
            self._budget = await run_passes(
                goal,
                encode=self._encode_pass,
                tries=lambda: self._rate.tries,
                other_bytes=partial(self._other_bytes, audio),
            )
        self._rate.begin_join()
        for segment, following in self._encoded_segments():
            self._joins.put_nowait((segment.facts.segment, following))

    async def _run_board(self) -> None:
        try:
            await self._board.run()
        finally:
            self._second_runs.append(self._board.second_runs)

    async def _encode_pass(self, wanted: RatePass) -> None:
        """Encode a pass's segments, except those that an earlier run of the job has encoded in the same pass."""
        self._rate.begin(wanted)
        board = self._board.board.of_some(self._rate.left())
        if wanted.number == FILM:
            done = [self._delivered.runs[segment] for segment in self._rate.of_film()]
            finished_ = [(run, self._finished(run, self._delivered.spooled[run.segment].facts)) for run in done]
            board, _ = restored(self._new_board(), finished_)
        self._board = self._loop(board)
        await self._run_board()

    async def _other_bytes(self, audio: asyncio.Task[dict[tuple[int, int], EncodedTrack]], number: int) -> int:
        """Return the size of all but pictures in the output: a guess before pass FILM; 0 if no size is requested."""
        goal, files = self._rate.goal, self._files
        if goal is None or goal.size_bytes is None:
            return 0
        if number == SAMPLE:
            return guessed_bytes(self._plan, self._stamp.size_bytes)
        if number in files.found.other_bytes:
            return files.found.other_bytes[number]
        path = files.spool.folder / f"output.once.{self._plan.container.name}"
        other_bytes = await shielded(joined_other_bytes, self._plan, path, await audio, self._encoded_segments())
        if files.journal.keeps:
            await shielded(files.journal.note, OtherBytes(number, other_bytes))
        return other_bytes

    def _encoded_segments(self) -> list[tuple[SpooledSegment, int | None]]:
        """Return the encoded segments in order, each with the time at which the next one begins."""
        board = self._board.board
        live = [each.number for each in board.segments if each.state is not SegmentState.MERGED]
        return [(self._delivered.spooled[number], self._following(board, number)) for number in live]

    async def _say_hang(self, message: str) -> None:
        self._hangs += 1
        await self._events.emit(Warned, code="deadline", message=message)

    async def _say_loss(self, label: str, error: WorkerLost) -> None:
        self._lost_on.append(WorkerId(error.where))
        await self._events.emit(Warned, code=WORKER_LOST, message=f"{label} was lost: {error.message}")

    async def _with_evidence(self, error: SegmentFailed) -> SegmentFailed:
        """Save the segment's packets if the job keeps evidence, and return the error.

        Its ``next_step`` then names the saved file, or says why the packets were not saved.
        """
        folder = self._plan.spec.keep_evidence
        if folder is None or error.segment is None:
            return error
        failed = self._board.board.segments[error.segment]
        range_ = self._plan.work(self._job, failed.number, failed.until, failed.entry_moves).decode
        try:
            path = await in_thread(save_evidence, Path(folder), failed.number, range_, failed.history)
        except CodecfleetError as unsaved:
            return SegmentFailed(error.message, f"The segment's packets were not saved: {unsaved}", error.segment)
        return SegmentFailed(
            error.message, f"Report this error with {path} and the .json file beside it.", error.segment
        )

    async def _work(self, run: Run) -> EncodedSegment:
        planned = self._plan.segments[run.segment : run.until + 1]
        await self._events.emit(
            SegmentStarted,
            segment=run.segment,
            start_s=self._plan.relative_s(planned[0].start_ticks),
            frames=sum(segment.frames for segment in planned),
            attempt=run.attempt,
            is_second=run.is_second,
        )
        if self._files.journal.keeps:
            await shielded(self._files.journal.note, Begun(run.segment))
        return await self._watched(run, self._segment_work(run))

    async def _watched(self, run: Run, work: EncodeSegment) -> EncodedSegment:
        encoder = self._plan.encoder
        facts = {"codec": encoder.codec.value, "encoder": encoder.implementation}
        tried = {"segment": run.segment, "attempt": run.attempt, "is_second": run.is_second}
        with span("segment", self._events.traceparent, job=self._job, **tried, **facts) as traced:
            planned = self._plan.segments[run.segment : run.until + 1]
            work = replace(work, traceparent=traced.traceparent)
            try:
                result = await self._watch.submit(work, sum(segment.frames for segment in planned))
            except CodecfleetError as error:
                traced.note(worker=error.where)
                if not isinstance(error, Cancelled):
                    line = f"try {run.attempt} of segment {run.segment} failed: {type(error).__name__}: {error.message}"
                    ids = LogIds(job=self._job, segment=run.segment, attempt=run.attempt, worker=error.where)
                    log(LogAction.SEGMENT_FAILED, line, ids)
                raise
            traced.note(**segment_facts(result))
            return result

    def _segment_work(self, run: Run) -> EncodeSegment:
        work = self._plan.work(self._job, run.segment, run.until, run.entry_moves)
        work = self._rate.with_crf(work)
        return replace(work, label=run.label, apart_from=run.apart_from, constraints=run.constraints, cores=run.cores)

    async def _accept(self, run: Run, result: EncodedSegment) -> Finished | Lost:
        """Write a result's payload to disk before the board sees the result.

        A result counts as lost if it contradicts itself, or if its seams differ from those before an adjusting pass.
        """
        await in_thread(self._stamp.check_local)
        if wrong := miscounted(result, len(result.payload)):
            self._watch.origin(run.label).found_wrong(wrong)
            return Lost(run.segment, EncoderFailed(wrong, "It is encoded again."), attempt=run.attempt)
        is_again = self._rate.now is not None and self._rate.now.number >= ADJUST
        if is_again and not self._delivered.has_ends_of(result):
            message = f"segment {run.segment} did not decode to the same pictures as before"
            return Lost(run.segment, EncoderFailed(message, "It is encoded again."), attempt=run.attempt)
        self._check_damage(run, result)
        self._tell_doubts(run, result)
        await self._put(run, result)
        await self._events.emit(
            SegmentFinished,
            segment=run.segment,
            frames=result.frames_out,
            payload_bytes=self._delivered.spooled[run.segment].payload_bytes,
            wall_s=result.wall_s,
            worker=self._watch.origin(run.label).worker,
        )
        return self._finished(run, result)

    def _tell_doubts(self, run: Run, result: EncodedSegment) -> None:
        """Report a device as doubtful if it failed and software took over, or if its pictures still differ at a cut."""
        if result.device_fault and not result.tally.damaged:
            self._watch.origin(run.label).found_doubtful(result.device_fault)
        before = self._delivered.runs.get(run.segment)
        if before is None or not run.entry_moves > before.entry_moves > 0:
            return
        if self._delivered.spooled[run.segment].facts.tally.decoded_by != SOFTWARE.name:
            reason = f"segment {run.segment} was decoded from further back, and its pictures still differ at the cut"
            self._watch.origin(before.label).found_doubtful(reason)

    def _check_damage(self, run: Run, result: EncodedSegment) -> None:
        if self._plan.spec.strict and result.tally.damaged:
            message = f"{self._plan.spec.source} is damaged around segment {run.segment}"
            raise InputDamaged(message, "Leave out --strict to encode the pictures that can be decoded.")

    def _finished(self, run: Run, result: EncodedSegment) -> Finished:
        event = finished(run, result.tally, self._segment_work(run).decode.entry, self._plan.index)
        # With a fixed frame rate, every segment must show pictures.
        return replace(event, is_void=self._plan.filters.rate is not None and not result.frames_out)

    async def _put(self, run: Run, result: EncodedSegment) -> None:
        self._delivered.put(run, await shielded(self._put_durably, run, result))

    def _put_durably(self, run: Run, result: EncodedSegment) -> SpooledSegment:
        spooled = self._files.spool.put(result)
        tries = self._rate.note(run.segment, run.until, spooled.payload_bytes)
        stored = spooled.facts, spooled.payload_bytes, spooled.payload_sha256
        self._files.encoded(Encoded(run.segment, run.until, run.entry_moves, run.attempt, *stored, tries))
        return spooled

    async def _release(self, board: Board, segment: int) -> None:
        if self._rate.goal is None:
            self._queue_join(board, segment)

    def _queue_join(self, board: Board, segment: int) -> None:
        """Queue a segment for the join, with the time at which the next segment begins."""
        self._joins.put_nowait((segment, self._following(board, segment)))

    def _following(self, board: Board, segment: int) -> int | None:
        right = board.right_of(board.segments[segment])
        if right is None:
            return None
        shown = self._delivered.first_shown(right.number)
        # A segment may hold no picture.
        return self._plan.segments[right.number].start_ticks if shown is None else shown

    async def _encode_audio(self) -> dict[SoundKey, EncodedTrack]:
        start_s, end_s = self._plan.clock_s(self._plan.spec.start_s), self._plan.clock_s(self._plan.spec.end_s)
        works = self._plan.carry.audio_works(self._job, self._plan.spec.source, start_s=start_s, end_s=end_s)
        tracks = await asyncio.gather(*(with_retries(self._watch.submit, work) for work in works.values()))
        return dict(zip(works, tracks, strict=True))

    async def _join_all(self, path: Path, audio: asyncio.Task[dict[SoundKey, EncodedTrack]]) -> JoinedTrack:
        """Join segments as the board releases them, until None is queued."""
        encoded = await audio
        self._loudness = {key: track.loudness for key, track in encoded.items() if track.loudness is not None}
        gather = Gather(self._plan, path, encoded)
        guard = RateGuard(self._plan)
        try:
            while (join := await self._joins.get()) is not None:
                segment, following = join
                while not guard.judge(self._delivered.spooled[segment].facts, following):
                    await self._encode_again(segment, guard)
                await shielded(gather.join, self._delivered.spooled[segment], following)
                if not self._files.journal.keeps:
                    self._files.spool.drop(self._delivered.spooled[segment])
                self._joined.append(segment)
            runs = [self._delivered.runs[number] for number in self._joined]
            check_manifest([self._delivered.spooled[number] for number in self._joined], runs, len(self._plan.segments))
            joined = await shielded(gather.finish)
        except BaseException:  # even after a cancellation, the file is closed
            gather.abandon()
            raise
        self._warnings = (*guard.warnings(), *gather.warnings)
        return joined

    async def _encode_again(self, segment: int, guard: RateGuard) -> None:
        run = self._delivered.runs[segment]
        work = guard.again(self._segment_work(run))
        result = await with_retries(partial(self._watched, run), work)
        await self._put(replace(run, attempt=run.attempt + 1), result)

    async def _report(self, running: Mapping[int, int]) -> None:
        done = self._delivered.frames(without=running) + sum(running.values())
        if self._rate.goal is not None:
            left = sum(self._board.board.frames_left) - sum(running.values())
            done = self._rate.frames_done([segment.frames for segment in self._plan.segments], left)
        self._frames_done = max(self._frames_done, min(self._plan.frames, done))
        elapsed_s = self._events.elapsed_s - self._encoding_began_s
        encoded, left = max(0, self._frames_done - self._frames_restored), self._plan.frames - self._frames_done
        planned = self._plan.segments
        await self._events.emit(
            Progress,
            frames_done=self._frames_done,
            frames_total=self._plan.frames,
            fps=encoded / elapsed_s if elapsed_s > 0 else 0.0,
            eta_s=time_left_s(elapsed_s, done=encoded, left=left),
            running=tuple((each, frames, planned[each].frames) for each, frames in sorted(running.items())),
        )
