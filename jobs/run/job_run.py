"""Runs one job from a spec to a published file: planning, choice of the encoder, encoding, proof, publishing."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from ...actors.decode.decoding import SOFTWARE
from ...actors.media.location import is_local
from ...actors.media.opening import refuse_folder
from ...actors.media.shared_blocks import HeldBlocks
from ...actors.media.stores import remote_state
from ...actors.task_owner import TaskOwner
from ...actors.tracing import PARENT, span, unserved
from ...cluster.fleet.default import sole_processor
from ...cluster.fleet.pool import Pool
from ...errors import (
    DeviceError,
    EncoderFailed,
    FleetUnavailable,
    JournalRefused,
    NotSmaller,
    OutputExists,
    ProofFailed,
    SegmentFailed,
    SizeExceeded,
    Unsupported,
    WorkerLost,
)
from ..board.loop import WorkerWait
from ..board.threads import in_thread, shielded, uncancellable
from ..board.watch import with_retries
from ..join.proof import prove
from ..join.publish import check_output, publish
from ..journal.found_work import is_published
from ..journal.header import header_of
from ..journal.journal import Replay
from ..journal.work import WorkPlace, published
from ..plan.encoders import NOT_ON_NVENC, may_choose, may_restart, settle_encoder_kind
from ..plan.placing import check_device, check_driver, check_memory, demand_of, settled_demand
from ..plan.plan import Plan, plan_of
from ..plan.reads import read_for
from ..report.channel import EventChannel, JobEvents
from ..report.events import Done, JournalOpened, Planned, Warned, WorkKept
from ..report.report import Report, Resumed, Warning_
from ..request.spec import TranscodeSpec
from ..source.source import SourceStamp
from .reached import target_warnings
from .reporting import FinishedTrack, damage_warnings, make_report, rate_warnings
from .track_run import TrackRun

_ENDS_AN_NVENC = (DeviceError, EncoderFailed, FleetUnavailable, ProofFailed, SegmentFailed, WorkerLost)
"""Errors that NVENC may have caused: it failed, is gone, or its segments do not fit together."""
_TOO_LATE = "the processors finished before a GPU was ready"  #: Why no GPU worked although nothing prevented it


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job that was planned: the version of the source before it was read, and the plan."""

    stamp: SourceStamp
    plan: Plan


class JobRun:
    """Runs one job. Use an instance only once.

    Args:
        job: the job's id.
        spec: the request.
        pool: where the work runs.
        channel: takes the job's events.
        start: starts ``pool``, and is awaited after planning; the start may already be under way.
        planned: the plan, if the job was planned before; None to read the source and to plan now.
        keeps_if_cancelled: returns whether a cancelled job keeps its finished segments for another run.
        keeps_record: whether the journal stays after the output is published. The same job then returns its report at
            once.
    """

    def __init__(
        self,
        job: str,
        spec: TranscodeSpec,
        pool: Pool,
        channel: EventChannel,
        *,
        start: Callable[[], Awaitable[None]] | None = None,
        planned: PlannedJob | None = None,
        keeps_if_cancelled: Callable[[], bool] = lambda: False,
        keeps_record: bool = False,
    ) -> None:
        self._job = job
        self._spec = spec
        self._pool = pool
        self._start = start or pool.start
        self._planned = planned
        self._keeps_if_cancelled = keeps_if_cancelled
        self._keeps_record = keeps_record
        self._work = WorkPlace(spec)
        self._resumed: Resumed | None = None
        self._events = JobEvents(job, channel)
        traces = unserved(os.environ)
        self._late_warnings = [Warning_(code="traces", message=line, checks=()) for line in traces]
        self._said: list[Warning_] = []
        self._workers = 1
        self._warm_fleet: int | None = None
        self._stamp = SourceStamp(spec.source, None) if planned is None else planned.stamp

    async def run(self) -> Report:
        """Run the job. Afterwards there is either the complete output or no output. Raises CodecfleetError.

        The finished segments of a failed job stay in its work location, from which another run continues.
        """
        spec = self._spec
        parent = os.environ.get(PARENT, "")
        with span("job", parent, job=self._job, source=spec.source, output=spec.output) as traced:
            self._events.traceparent = traced.traceparent
            report = await self._run_to_end()
            traced.note(frames=report.frames, segments=len(report.segments), encoder=report.encoder_kind)
            return report

    async def _run_to_end(self) -> Report:
        taken = await in_thread(self._taken)
        if taken is not None:  # even with ``restart``, what an earlier run has published is only reported
            self._work = WorkPlace(self._spec.model_copy(update={"restart": False}))
        try:
            await shielded(self._work.open)
            report = await self._published()
            if report is None:
                if taken is not None:
                    raise taken  # noqa: TRY301 - the work location is released as after any other failure
                report = await self._sharing_blocks()
        except BaseException as error:  # even after a cancellation, work is kept or removed
            await asyncio.shield(self._keep_or_remove(error))
            raise
        await asyncio.shield(in_thread(self._work.keep_record if self._keeps_record else self._work.remove))
        return report

    def _taken(self) -> OutputExists | None:
        """Return the error for an existing output that an earlier run of this job may have published, if there is one.

        Raises OutputExists: the output exists, and no earlier run of this job published it.
        """
        spec = self._spec
        refuse_folder(spec.source)
        try:
            check_output(spec.source, spec.output, overwrite=spec.overwrite)
        except OutputExists as error:
            if not is_published(spec):
                raise
            return error
        return None

    async def _published(self) -> Report | None:
        report = await in_thread(published, self._work.found, self._spec)
        if report is not None:
            report = report.model_copy(update={"job": self._job})
            restored = self._work.found.segments_done
            await self._events.emit(JournalOpened, work=self._work.location, restored=restored, redone=0)
            await self._events.emit(Done, report=report)
        return report

    async def _keep_or_remove(self, error: BaseException) -> None:
        """Keep finished segments, unless they are useless, the job was cancelled for good, or the source changed."""
        is_over = isinstance(error, NotSmaller | SizeExceeded)
        is_over |= isinstance(error, asyncio.CancelledError) and not self._keeps_if_cancelled()
        if is_over or await in_thread(self._stamp.is_replaced):
            await in_thread(self._work.remove)
        elif kept := await in_thread(self._work.keep):
            await self._events.emit(WorkKept, work=self._work.location, segments=kept)

    async def _sharing_blocks(self) -> Report:
        """Run the job, with a cache, so that this machine reads each block of a remote source only once."""
        blocks = HeldBlocks(self._spec.source)
        try:
            await shielded(blocks.hold)
            return await self._run()
        finally:
            await asyncio.shield(in_thread(blocks.let_go))

    async def _run(self) -> Report:
        spec = self._spec
        if self._planned is None:
            self._stamp = await in_thread(SourceStamp.of, spec.source)
        try:
            software = await self._new_plan() if self._planned is None else self._planned.plan
        except Exception as error:  # any failure may be due to a changed source
            await in_thread(self._stamp.explain, error)
            raise
        if (refusal := await in_thread(self._refusal, software, encoder=False)) is not None:
            raise refusal
        await in_thread(self._check_machine, software)
        await self._events.timed("startup", self._start())
        plan, notes = await self._settled(software)
        self._late_warnings += notes
        await check_device(settled_demand(plan, self._job), self._pool)
        self._workers = spec.workers or self._pool.state.slots
        self._warm_fleet = self._pool.state.warm_fleet
        await self._say_plan(plan)
        try:
            return await self._on_nvenc_or_software(plan, software)
        except Exception as error:  # as above
            await in_thread(self._stamp.explain, error)
            raise

    async def _new_plan(self) -> Plan:
        reads = await self._events.timed("index", in_thread(read_for, self._spec))
        return await self._events.timed("plan", in_thread(plan_of, self._spec, reads))

    def _check_machine(self, software: Plan) -> None:
        """Refuse, before workers start, a job that this machine can never do."""
        if self._pool.state.is_here and (machine := sole_processor()) is not None:
            check_driver(software)
            check_memory(demand_of(software, self._job), machine)

    async def _settled(self, software: Plan) -> tuple[Plan, list[Warning_]]:
        """Choose the encoder. While no worker is available, report the reason; fail after too long a wait."""
        if may_choose(software) and self._work.found.header and not await in_thread(self._refusal, software):
            return software, []  # an earlier run switched to software
        wait = WorkerWait(self._pool, self._job, software.spec, self._events.emit_waiting)
        async with TaskOwner() as owner:
            owner.start(wait.run(), "wait for a worker")
            return await settle_encoder_kind(software, self._job, self._pool, partial(with_retries, self._pool.submit))

    async def _on_nvenc_or_software(self, plan: Plan, software: Plan) -> Report:
        try:
            return await self._done(plan)
        except _ENDS_AN_NVENC as error:
            if not may_restart(plan):
                raise
            message = f"software encodes the track from its start: {error.message}"
        self._late_warnings.append(Warning_(code=NOT_ON_NVENC, message=message, checks=()))
        software = replace(software, spec=software.spec.model_copy(update={"encoder": "software"}))
        await check_device(settled_demand(software, self._job), self._pool)
        await self._say_plan(software)
        self._work.forget()
        return await self._done(software)

    def _refusal(self, plan: Plan, *, encoder: bool = True) -> JournalRefused | None:
        return self._work.refusal(header_of(plan), encoder=encoder) if self._work.found.header is not None else None

    async def _done(self, plan: Plan) -> Report:
        work = self._work
        found = await shielded(work.restore, await in_thread(header_of, plan))
        track = TrackRun(self._job, plan, self._pool, events=self._events, stamp=self._stamp, work=work)
        await shielded(track.restore, found.encoded.values())
        await self._say_journal(found)
        return await self._publish(plan, await track.run())

    async def _say_journal(self, found: Replay) -> None:
        done, again = found.segments_done, len(found.in_flight)
        self._resumed = Resumed(restored=done, redone=again) if found.header is not None else None
        if found.broken:
            message = f"the journal is damaged, and the segments after the damage are encoded again: {found.broken}"
            self._late_warnings.append(Warning_(code="journal", message=message, checks=()))
            await self._say_warnings(self._late_warnings)
        if self._work.journal.keeps:
            await self._events.emit(JournalOpened, work=self._work.location, restored=done, redone=again)

    async def _publish(self, plan: Plan, track: FinishedTrack) -> Report:
        spec, events = self._spec, self._events
        due = None if plan.filters.rate is None else plan.frames
        proving = in_thread(prove, track.path, plan.container, track.segments, track.joined, due)
        proof = await events.timed("proof", proving)
        late = [*damage_warnings(plan, track.segments), *self._late_warnings, *track.warnings]
        late += rate_warnings(plan, track)
        if plan.encoder.target is not None:
            found = [each.facts.quality for each in track.segments if each.facts.quality is not None]
            late += target_warnings(plan.encoder.target, found, plan.encoder.rate.maxrate_bps)
        late += [Warning_(code="runtime", message=note, checks=()) for note in self._pool.state.notes]
        size = await in_thread(lambda: track.path.stat().st_size)
        if spec.size_bytes is not None and size > spec.size_bytes:
            message = f"the film does not fit into {spec.size_bytes} bytes: after all passes it has {size}"
            raise SizeExceeded(message, SizeExceeded.WHAT_NEXT)
        await self._say_warnings(late)
        if spec.if_smaller:
            await in_thread(self._check_size, size)
        # Everything slow comes before publishing, so that a job cancelled meanwhile leaves no output.
        gpu_refusal = await self._gpu_refusal(plan, track)
        await in_thread(self._stamp.check)
        await in_thread(self._work.check)
        facts = {"job": self._job, "workers": self._workers, "warm_fleet": self._warm_fleet, "resumed": self._resumed}
        facts |= {"warnings": (*plan.warnings, *late), "output_bytes": size, "gpu_refusal": gpu_refusal}
        report = make_report(plan, track, proof, events.stages_s | {"total": events.elapsed_s}, facts)
        # The output is recorded first. A run that is killed before the clean-up is then known to be finished.
        await shielded(self._work.complete, report)
        await events.timed("publish", uncancellable(publish, track.path, spec.output, overwrite=spec.overwrite))
        timings_s = events.stages_s | {"total": events.elapsed_s}
        report = report.model_copy(update={"timings_s": timings_s})
        await events.emit(Done, report=report)
        return report

    def _check_size(self, size_bytes: int) -> None:
        source, source_bytes = self._spec.source, self._stamp.size_bytes
        if source_bytes is None and not is_local(source):
            _, source_bytes = remote_state(source)  # a store may state the size without a version
        if source_bytes is None:
            message = f"--if-smaller needs the size of {source}, which its store does not report"
            raise Unsupported(message, "Leave out --if-smaller, or use a local copy of the input.")
        if size_bytes >= source_bytes:
            message = f"the result has {size_bytes} bytes, but {source} has only {source_bytes}"
            raise NotSmaller(message, "Leave out --if-smaller, or use a higher --quality number.")

    async def _gpu_refusal(self, plan: Plan, track: FinishedTrack) -> str:
        """Return why no GPU worked; "" if a GPU worked, or if the job wanted none."""
        tallies = [segment.facts.tally for segment in track.segments]
        has_worked = plan.kind is not None or any(tally.decoded_by != SOFTWARE.name for tally in tallies)
        if self._spec.device == "cpu" or has_worked:
            return ""
        preview = await self._pool.preview(settled_demand(plan, self._job))
        # A GPU suits the work and refused no picture, so it must have been ready too late.
        is_late = preview.takes_gpu and not any(tally.fallback for tally in tallies)
        return _TOO_LATE if is_late else preview.gpu_refusal

    async def _say_plan(self, plan: Plan) -> None:
        await self._events.emit(
            Planned,
            segments=len(plan.segments),
            frames=plan.frames,
            duration_s=plan.duration_s,
            codec=plan.encoder.codec.value,
            encoder=plan.encoder.implementation,
            workers=self._workers,
            warm_fleet=self._warm_fleet,
        )
        await self._say_warnings([*plan.warnings, *self._late_warnings])

    async def _say_warnings(self, warnings: Iterable[Warning_]) -> None:
        for warning in warnings:
            if warning not in self._said:
                self._said.append(warning)
                await self._events.emit(Warned, code=warning.code, message=warning.message, checks=warning.checks)
