"""Follows a recording in progress: encodes its complete segments part by part, and publishes a ladder that grows."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ...actors.background import SharedCall
from ...actors.media.location import is_local, local_path
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool
from ...errors import CodecfleetError, JournalRefused, ProofFailed, UsageError
from ..board.threads import in_thread, shielded
from ..join.publish import work_folder
from ..join.spool import RENDITIONS, Spool
from ..journal.header import request_text
from ..ladder.job import LadderRun
from ..ladder.plan import Ladder, plan_read, read_ladder
from ..ladder.report import INDEX, LadderReport
from ..ladder.spec import LadderSpec
from ..ladder.tracks import given_video
from ..package.check import check_package
from ..package.growing import GrowingPackage, TrackPart
from ..package.manifests.manifests import manifests
from ..package.proven import read_proven
from ..package.values import Layout, Package, PackageStage
from ..report.events import Event
from ..report.report import Report
from ..request.config import load_config
from ..request.spec import TranscodeSpec
from ..source.index import TrackIndex
from ..source.source import SourceReading
from .events import FollowEvents
from .growing import FileState, Growth
from .parts import check_same, ends_s, fullness_after, merged, part_ladder
from .published import LiveFolder
from .recording import LiveRecording
from .sound import LiveSounds
from .state import FollowedPart, FollowState
from .windows import Window, final_segments, needed_ticks, next_window

_STATE: Final = "follow.json"
_PARTS: Final = "parts"
_REORDER_FRAMES: Final = 4  #: The largest reorder depth of a ladder's encoders
_REFUSED: Final = {
    "overwrite": "--overwrite",
    "thumbnails_s": "--thumbnails",
    "keys": "--keys",
    "ship": "--ship",
    "start_s": "--start",
    "end_s": "--end",
}
_OF_WHOLE: Final = {"fps": "--fps", "loudness_lufs": "--loudness", "burn_subtitles": "--burn-subtitles"}


async def follow_ladder(
    spec: LadderSpec,
    pool: Pool,
    *,
    tell: Callable[[Event], None] = lambda _event: None,
    keeps_record: bool = False,
    now_s: Callable[[], float] = time.monotonic,
) -> LadderReport:
    """Make a ladder of a recording until the recording ends. Until then, the output folder has the ladder's beginning.

    After a kill, the same request continues where the journal ends. The finished package has the same packets as a
    ladder of the finished file with the same segment length. With ``keeps_record``, the journal stays at the end, so
    that the same request can be run again and succeeds. Raises CodecfleetError.
    """
    sent = load_config().sent.specs.get(spec.preset)
    spec = _settled(spec)
    folder = work_folder(spec.output)
    work = folder / RENDITIONS
    state = await in_thread(_state, spec, work / _STATE)
    target = LiveFolder.of(spec.output, work)
    await in_thread(target.check, spec.source, state.tracks)
    spool = Spool(folder, spec.output)
    await shielded(lambda: spool.open(continues=True, discards=spec.restart))
    try:
        await in_thread(lambda: (work / _PARTS).mkdir(parents=True, exist_ok=True))
        await in_thread(target.begin)
        start = SharedCall(pool.start(), "the workers' start")
        run = _FollowRun(spec, work, sent, pool, start, state, target, tell, now_s)
        report = await run.run()
    except BaseException:  # also after a cancellation, so that the same request can continue
        await asyncio.shield(in_thread(_leave, spool, target, work / _STATE))
        raise
    await asyncio.shield(in_thread(spool.keep if keeps_record else spool.remove))
    return report


def _settled(spec: LadderSpec) -> LadderSpec:
    """Return the request with paths resolved and a segment length. Raises UsageError: --follow cannot fulfil it."""
    _refuse(spec, _REFUSED | _OF_WHOLE)
    if "layout" in spec.model_fields_set and spec.layout is not Layout.FILES:
        raise UsageError("--follow writes each segment into a file of its own", "Use --layout files.")
    if spec.subtitles not in (None, "none") and "subtitles" in spec.model_fields_set:
        raise UsageError("--follow leaves subtitles out", "Leave out --subtitles.")
    if not is_local(spec.source):
        message = f"--follow reads a file on this machine, not {spec.source}"
        raise UsageError(message, "Run it on the machine where the file grows.")
    segment_s = spec.segment_s or spec.packaged_s
    fixed = {"layout": Layout.FILES, "segment_s": segment_s, "subtitles": "none"}
    return spec.model_copy(update=fixed).resolved()


def _refuse(spec: LadderSpec | TranscodeSpec, flags: Mapping[str, str]) -> None:
    """Raise UsageError if the request has one of these options, or ``--crop auto``."""
    for name, flag in flags.items():
        if getattr(spec, name, None):
            raise UsageError(f"{flag} cannot be used with --follow", f"Leave out {flag}.")
    if spec.crop == "auto":
        raise UsageError("--crop auto cannot be used with --follow", "Give the crop as numbers.")


def _leave(spool: Spool, target: LiveFolder, path: Path) -> None:
    """Keep the work folder if the journal has a finished part, else remove it; remove an empty output folder."""
    target.leave()
    with suppress(CodecfleetError):
        state = FollowState.read(path)
        if state is not None and state.parts:
            spool.keep()
            return
    spool.remove()


def _state(spec: LadderSpec, path: Path) -> FollowState:
    """Return the journal's state; a new one with ``restart`` or if there is no journal.

    Raises JournalRefused: the journal belongs to another request; InputUnreadable: the recording was replaced.
    """
    now = FileState.of(local_path(spec.source))
    request = request_text(spec)
    found = None if spec.restart else FollowState.read(path)
    if found is None:
        return FollowState(identity=now.identity, request=request)
    before = FileState(found.identity, found.size_bytes)
    Growth(before, 0).seen(local_path(spec.source), now, 0, 1)  # raises if the file was replaced or is shorter
    if found.request != request:
        message = f"{spec.output} was begun with other options"
        raise JournalRefused(message, "Run the command that began it, or choose another folder.")
    return found


class _FollowRun:
    def __init__(  # noqa: PLR0917 - only ``follow_ladder`` calls it
        self,
        spec: LadderSpec,
        work: Path,
        sent: str | None,
        pool: Pool,
        start: SharedCall,
        state: FollowState,
        target: LiveFolder,
        tell: Callable[[Event], None],
        now_s: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._segment_s = spec.segment_s or spec.packaged_s
        self._work = work
        self._sent = sent
        self._pool = pool
        self._start = start
        self._state = state
        self._target = target
        self._events = FollowEvents(tell)
        self._now_s = now_s
        self._package = GrowingPackage(target.folder, segment_s=spec.packaged_s, published=state.published)
        self._first: Ladder | None = None
        self._sounds: LiveSounds | None = None
        self._decoded = self._encoded = 0
        self._apart = ""
        self._behind_s = 0.0

    async def run(self) -> LadderReport:
        began_s, spec = self._now_s(), self._spec
        await in_thread(self._note)
        recording = LiveRecording(
            local_path(spec.source), spec.video_track, spec.quiet_s, self._now_s, self._state.ended_bytes
        )
        try:
            async with TaskOwner() as owner:
                owner.start(recording.watch(), "the recording")
                await self._follow(recording)
        finally:
            await asyncio.shield(in_thread(recording.close))
        package = self._package.package(PackageStage.GROWN)
        await in_thread(check_package, self._target.folder, package)
        report = await in_thread(self._report, package, self._now_s() - began_s)
        texts = {**manifests(package), INDEX: json.dumps(report.to_json(), indent=1)}
        await shielded(self._target.texts, texts)
        return report

    async def _follow(self, recording: LiveRecording) -> None:
        """Encode and publish until the source has ended."""
        if self._state.parts:
            await shielded(self._publish, self._state.parts)
        while not (self._state.parts and self._state.parts[-1].is_last):
            reading, is_over = await recording.next()
            seen_s = recording.growth.grown_at_s
            if not is_over:
                self._events.reach(_ahead_s(reading.index, self._state.ends), self._segment_s)
            if is_over and self._state.ended_bytes is None:
                await in_thread(self._note, ended_bytes=recording.ended_bytes)
            found = await in_thread(self._next, reading, is_over=is_over)
            if found is None:
                continue
            await self._take(*found, recording)
            if not is_over:
                self._behind_s = max(self._behind_s, self._now_s() - seen_s)

    def _next(self, reading: SourceReading, *, is_over: bool) -> tuple[Window, Ladder] | None:
        """Return the next segments to encode and their plan; None if there are none yet."""
        index, ends = reading.index, self._state.ends
        if not is_over and index.end_ticks < needed_ticks(index, ends[-1] if ends else None, self._segment_s):
            return None
        ladder = plan_read(read_ladder(self._spec, self._work / _PARTS, self._sent, reading))
        self._first = self._first or _checked(ladder)
        check_same(self._first, ladder, ends)
        segments = next(iter(ladder.plans.values())).segments
        window = next_window(
            taken=len(ends),
            final=final_segments(index, segments, self._segment_s),
            planned=len(segments),
            is_over=is_over,
            most=max(1, self._pool.state.slots),
        )
        return None if window is None else (window, ladder)

    async def _take(self, window: Window, ladder: Ladder, recording: LiveRecording) -> None:
        """Encode and prove a window, record it in the journal, and publish the segments that it completes."""
        carrying = next(iter(ladder.plans.values()))
        last = self._state.parts[-1] if self._state.parts else None
        beside_s = carrying.carry.first_presentation_s
        part_plans = part_ladder(
            ladder,
            window,
            self._work / _PARTS,
            beside_s if last is None else None,
            {} if last is None else last.fullness_bits,
        )
        reports = await self._encoded_part(part_plans)
        first = next(iter(reports.values()))
        if last is not None:
            _check_seam(last, first)
        begins_s = Fraction(first.segments[0].first_pts_ticks or 0) * Fraction(first.time_base)
        origin_s = self._state.origin_s
        if origin_s is None:
            origin_s = begins_s if beside_s is None else min(begins_s, beside_s)
        end_s = await in_thread(ends_s, part_plans, begins_s - origin_s if window.first else Fraction(0))
        if self._sounds is None:
            self._sounds = LiveSounds(carrying.carry, recording, self._work / _PARTS, origin_s)
        begin_s = None if last is None else last.ends_s
        part = FollowedPart(
            first=window.first,
            until=window.until,
            ends=tuple(each.end_ticks for each in carrying.segments[window.first : window.until]),
            ends_s=end_s,
            begins_s=begins_s,
            fullness_bits=await in_thread(self._fullness, part_plans),
            sound=await self._sounds.part(window.first, begin_s, None if window.is_last else end_s),
            reports={name: each.model_dump(mode="json", by_alias=True) for name, each in reports.items()},
        )
        await in_thread(
            self._note,
            parts=(*self._state.parts, part),
            origin_s=origin_s,
            groups=ladder.sound_groups,
            size_bytes=recording.growth.state.size_bytes,
        )
        await shielded(self._publish, [part])

    async def _encoded_part(self, ladder: Ladder) -> dict[str, Report]:
        run = LadderRun(ladder, self._pool, self._start, self._events.hear)
        reports = await run.renditions()
        encoded = sum(len(each.segments) for each in reports.values())
        self._events.take(sum(each.frames for each in reports.values()))
        self._encoded += encoded
        self._decoded += encoded if run.place.apart else run.decoded
        self._apart = run.place.apart or self._apart
        return reports

    def _fullness(self, ladder: Ladder) -> dict[str, Fraction]:
        found = {
            name: fullness_after(plan, read_proven(given_video(name, local_path(plan.spec.output))).samples)
            for name, plan in ladder.plans.items()
        }
        return {name: bits for name, bits in found.items() if bits is not None}

    def _publish(self, parts: Sequence[FollowedPart]) -> None:
        """Publish the segments that these parts complete, then the playlists that name them. Blocks."""
        new: list[str] = []
        for part in parts:
            new += self._package.add(self._tracks(part), is_last=part.is_last)
        self._target.segments(new)
        if all(self._package.segments.values()):
            self._target.texts(manifests(self._package.package(PackageStage.GROWING)))
            self._note(published=self._package.segments)

    def _tracks(self, part: FollowedPart) -> list[TrackPart]:
        folder, origin_s = self._work / _PARTS, self._state.origin_s or Fraction(0)
        offset_s = part.begins_s - origin_s if part.first else Fraction(0)
        videos = [
            TrackPart(given_video(name, folder / f"{name}-{part.first:06d}.mp4"), offset_s, _REORDER_FRAMES)
            for name in part.reports
        ]
        return [*videos, *LiveSounds.tracks(folder, part.first, part.sound, self._state.groups)]

    def _note(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of the state
        self._state = replace(self._state, **changes)
        self._state.write(self._work / _STATE)

    def _report(self, package: Package, wall_s: float) -> LadderReport:
        parts, texts = self._state.parts, [*manifests(package), INDEX]
        segments = [
            each for each in self._target.folder.rglob("*") if each.is_file() and each.suffix in (".m4s", ".mp4")
        ]
        names = sorted({*(str(each.relative_to(self._target.folder)) for each in segments), *texts})
        return LadderReport(
            source=self._spec.source,
            output=self._spec.output,
            renditions=tuple((name, merged([part.report(name) for part in parts])) for name in parts[0].reports),
            left_out=() if self._first is None else self._first.left_out,
            package=package,
            files=tuple(names),
            output_bytes=sum(each.stat().st_size for each in segments),
            encoded=self._encoded,
            decoded=self._decoded,
            apart=self._apart,
            wall_s=wall_s,
            behind_s=self._behind_s,
        )


def _ahead_s(index: TrackIndex, ends: Sequence[int | None]) -> Fraction:
    """Return how many seconds of the source follow the encoded segments, whose ends in ticks are ``ends``."""
    until = ends[-1] if ends else None
    return (index.end_ticks - (index.first_ticks if until is None else until)) * index.time_base


def _checked(ladder: Ladder) -> Ladder:
    """Return the ladder. Raises UsageError: a rendition of its preset has an option that needs the whole file."""
    for plan in ladder.plans.values():
        _refuse(plan.spec, _OF_WHOLE)
    return ladder


def _check_seam(last: FollowedPart, first: Report) -> None:
    """Check that a part begins with the picture that the previous part decoded after its end. Raises ProofFailed."""
    before = next(last.report(name) for name in last.reports)
    if before.proof.seam_after != first.proof.seam_before:
        message = "a part of the recording does not begin with the picture that follows the previous part"
        raise ProofFailed(message, "Make the ladder of the finished file, without --follow.")
