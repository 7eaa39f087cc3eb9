"""Builds a job's report, and the warnings that come after planning, from the results of the stages."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final

from ...actors.device.interface import SESSIONS_OPENING
from ...actors.quality.measuring import UNITS, summary
from ...actors.segment.burn import BurntSubtitles
from ...actors.segment.filtering import DENOISE
from ...actors.segment.targeting import ReachedQuality
from ...actors.segment.walk import NAMED_DAMAGED_FRAMES, SegmentTally
from ...actors.tracks.loudness import Loudness
from ...cluster.grouping import counted
from ...cluster.worker_names import WorkerId
from ..board.events import Run
from ..board.retries import Attempt
from ..carry.track_plan import SoundKey
from ..join.spool import SpooledSegment
from ..join.video_track import JoinedTrack
from ..plan.plan import Plan
from ..rate.allocation import SLACK, SizeBudget
from ..rate.passes import BUCKET, PassTry
from ..report.report import (
    AttemptReport,
    BurnReport,
    LoudnessReport,
    Proof,
    QualityReport,
    RateReport,
    Report,
    SegmentReport,
    TargetReport,
    Warning_,
)

WORKER_LOST: Final = "worker-lost"
_STATIONS_NAMED: Final = 4
_MET_ONE: Final = {
    "damaged": "1 packet of the source does not decode; it was skipped",
    "corrupt": "1 picture of the source is damaged; it was kept",
    "time-missing": "1 picture has no timestamp; one was derived",
    "time-repeated": "1 picture shared a timestamp; it was moved",
    "merged": "1 cut was removed, because no access point proved it",
}
_MET_MORE: Final = {
    "damaged": "{} packets of the source do not decode; they were skipped",
    "corrupt": "{} pictures of the source are damaged; they were kept",
    "time-missing": "{} pictures have no timestamps; these were derived",
    "time-repeated": "{} pictures shared a timestamp; they were spread",
    "merged": "{} cuts were removed, because no access point proved them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTrack:
    """An encoded and joined track."""

    path: Path
    joined: JoinedTrack
    segments: tuple[SpooledSegment, ...]
    restored: frozenset[int]  #: the segments that an earlier run of the job encoded
    runs: tuple[Run, ...]
    warnings: tuple[Warning_, ...]
    loudness: Mapping[SoundKey, Loudness]  #: the loudness of encoded sound
    budget: SizeBudget | None  #: the sizes that the pictures may have; None if the job has no rate to reach
    tries: Mapping[int, tuple[PassTry, ...]]  #: each segment's encodings, in passes; empty without a rate to reach


def damage_warnings(plan: Plan, segments: Sequence[SpooledSegment]) -> list[Warning_]:
    """Return warnings about damage and fallbacks that the index could not predict."""
    met = [segment.facts.tally for segment in segments]
    damaged = sum(m.corrupt_frames for m in met)
    counts = {
        "damaged": sum(m.failed_packets for m in met),
        "corrupt": damaged,
        "time-missing": sum(m.repaired.missing for m in met),
        "time-repeated": sum(m.repaired.repeated for m in met),
        "merged": len(plan.segments) - len(segments),
    }
    texts = {
        code: (_MET_MORE if count > 1 else _MET_ONE)[code].format(count) for code, count in counts.items() if count
    }
    if damaged:
        texts["corrupt"] += _times(plan, met)
    found = [Warning_(code=code, message=text, checks=()) for code, text in texts.items()]
    found += _resized(plan, segments)
    # Waiting for a session to open is normal, and needs no warning.
    reasons = Counter(each.fallback for each in met if each.fallback not in ("", SESSIONS_OPENING))
    return found + [
        Warning_(code="fallback", message=f"software decoded {count} of {len(met)} segments: {reason}", checks=())
        for reason, count in reasons.items()
    ]


def second_run_warnings(second_runs: str, hangs: int) -> list[Warning_]:
    """Return warnings about late segments and hung work that were run again."""
    found = [Warning_(code="second-run", message=second_runs, checks=())] if second_runs else []
    message = f"{counted(hangs, 'run')} made no progress within the deadline and ran again elsewhere"
    return found + ([Warning_(code="deadline", message=message, checks=())] if hangs else [])


def loss_warnings(lost_on: Sequence[WorkerId]) -> list[Warning_]:
    """Return a warning about lost work; ``lost_on`` has the worker of each lost run, or "" if that is unknown."""
    if not lost_on:
        return []
    stations = sorted({where.station for where in lost_on} - {""})
    named = ", ".join(stations[:_STATIONS_NAMED]) + (" and others" if len(stations) > _STATIONS_NAMED else "")
    message = f"work was lost{f' on {named}' if named else ''}: {counted(len(lost_on), 'run')} repeated"
    return [Warning_(code=WORKER_LOST, message=message, checks=())]


def _resized(plan: Plan, segments: Sequence[SpooledSegment]) -> Iterator[Warning_]:
    counts: Counter[tuple[int, int]] = Counter()
    for segment in segments:
        counts.update(segment.facts.resized)
    if counts and plan.spec.scale is None:
        sizes = ", ".join(f"{count} of {width}x{height}" for (width, height), count in sorted(counts.items()))
        width, height = plan.filters.size
        message = f"pictures of other sizes were scaled to {width}x{height}: {sizes}"
        yield Warning_(code="resized", message=message, checks=("metadata.aspect", "pictures.aspect"))


def _times(plan: Plan, met: Sequence[SegmentTally]) -> str:
    times = [float(plan.relative_s(ticks)) for each in met for ticks in each.damaged_ticks]
    named = ", ".join(f"{time_s:.3f}" for time_s in times[:NAMED_DAMAGED_FRAMES])
    return f", at {named} s" + (" and later" if sum(each.corrupt_frames for each in met) > NAMED_DAMAGED_FRAMES else "")


def make_report(
    plan: Plan, track: FinishedTrack, proof: Proof, timings_s: dict[str, float], facts: dict[str, Any]
) -> Report:
    """Return the report of a finished job. ``facts`` are the fields that only the run knows."""
    encode_s = timings_s.get("encode", 0.0)
    encoded = sum(each.facts.frames_out for each in track.segments if each.facts.segment not in track.restored)
    return Report(
        **facts,
        source=plan.spec.source,
        output=plan.spec.output,
        container=plan.container.name,
        codec=plan.encoder.codec.value,
        start_s=None if plan.spec.start_s is None else str(plan.spec.start_s),
        end_s=None if plan.spec.end_s is None else str(plan.spec.end_s),
        video_track=plan.spec.video_track,
        encoder_kind=plan.encoder_kind,
        **_pictures(plan),
        time_base=str(plan.index.time_base),
        duration_s=str(plan.duration_s),
        frames=proof.output_frames,
        segments=tuple(
            _segment(plan, run, segment, restored=run.segment in track.restored)
            for run, segment in zip(track.runs, track.segments, strict=True)
        ),
        tracks=plan.tracks_report,
        loudness=tuple(_loudness(index, track.loudness[index, form]) for index, form in sorted(track.loudness)),
        proof=proof,
        choices=plan.choices,
        quality=_target(plan, [each.facts.quality for each in track.segments]),
        rate=_rate(plan, track),
        timings_s=timings_s,
        fps=round(encoded / encode_s, 2) if encode_s else 0.0,
    )


def _pictures(plan: Plan) -> dict[str, Any]:
    picture, filters = plan.encoder.format, plan.filters
    return {
        "width": picture.width,
        "height": picture.height,
        "pix_fmt": picture.pix_fmt,
        "steps": None if (steps := filters.steps) is None else asdict(steps) | {"crop": astuple(steps.crop)},
        "denoise": DENOISE.get(filters.denoise, ""),
        "tone": None
        if (tone := filters.tone) is None
        else {"operator": tone.operator.value, "transfer": tone.transfer.value, "peak_cd": str(tone.peak_cd)},
        "overlay": None
        if (laid := filters.overlay) is None
        else {
            "picture": plan.spec.overlay,
            "sha256": laid.sha256,
            "place": (laid.x, laid.y),
            "opacity_percent": laid.opacity,
        },
        "burnt": None if filters.burn is None else _burnt(filters.burn, plan.spec.subtitle_font),
        "frame_rate": None if filters.rate is None else str(filters.rate.fps),
    }


def _burnt(burn: BurntSubtitles, font: str | None) -> BurnReport:
    screen = burn.screen
    return BurnReport(
        source_index=burn.source_index,
        sha256=burn.sha256,
        screen=(str(screen.left), str(screen.top), str(screen.width), str(screen.height)),
        source=screen.source,
        shape=str(screen.shape),
        font=font,
    )


def _loudness(index: int, loudness: Loudness) -> LoudnessReport:
    lufs, peak = loudness.integrated_lufs, loudness.true_peak_db
    return LoudnessReport(
        source_index=index,
        source_lufs=None if lufs is None else float(lufs),
        source_true_peak_db=None if peak is None else float(peak),
        gain_db=float(loudness.gain_db),
    )


def attempt_report(failed: Attempt) -> AttemptReport:
    """Return a failed attempt in the form that the report has."""
    return AttemptReport(
        attempt=failed.attempt, step=failed.step, where=failed.where, fault=failed.fault.value, cause=failed.cause
    )


def _segment(plan: Plan, run: Run, spooled: SpooledSegment, *, restored: bool) -> SegmentReport:
    facts, tally, planned = spooled.facts, spooled.facts.tally, plan.segments[run.segment]
    return SegmentReport(
        segment=run.segment,
        start_ticks=planned.start_ticks,
        end_ticks=plan.segments[run.until].end_ticks,
        cut_reason=planned.reason,
        frames_in=tally.frames,
        frames_out=facts.frames_out,
        first_pts_ticks=tally.first_ticks,
        last_pts_ticks=tally.last_ticks,
        payload_bytes=spooled.payload_bytes,
        payload_sha256=spooled.payload_sha256,
        damaged_packets=tally.failed_packets,
        damaged_frames=tally.corrupt_frames,
        damaged_pts_ticks=tally.damaged_ticks,
        entry_moves=run.entry_moves,
        attempts=run.attempt,
        failures=tuple(map(attempt_report, run.history)),
        restored=restored,
        decoded_by=tally.decoded_by,
        fallback=tally.fallback,
        decode_s=round(tally.decode_s, 4),
        encode_s=round(facts.encode_s, 4),
        wall_s=round(facts.wall_s, 4),
        quality=None if facts.quality is None else QualityReport(**_quality(plan, [facts.quality])),
    )


def rate_warnings(plan: Plan, track: FinishedTrack) -> list[Warning_]:
    """Return a warning if the film misses the requested rate."""
    rate = _rate(plan, track)
    if rate is None or track.budget is None or track.budget.most * (1 - SLACK) <= rate.video_bytes <= track.budget.most:
        return []
    crfs = " to ".join(f"{crf:g}" for crf in sorted(set(rate.crfs)))
    message = f"the film has {rate.reached_bps} bit/s instead of the requested {rate.wanted_bps}, with CRF {crfs}"
    return [Warning_(code="rate-missed", message=message, checks=())]


def _rate(plan: Plan, track: FinishedTrack) -> RateReport | None:
    last = [made[-1] for made in track.tries.values()]
    if track.budget is None or not last:
        return None
    video_bytes = sum(segment.payload_bytes for segment in track.segments)
    crfs = [float(each.tried.crf) for each in last]
    spec = plan.spec
    return RateReport(
        asked=f"{spec.bitrate_bps} bit/s" if spec.size_bytes is None else f"{spec.size_bytes} bytes",
        wanted_bps=int(track.budget.most * 8 / plan.duration_s),
        reached_bps=int(video_bytes * 8 / plan.duration_s),
        video_bytes=video_bytes,
        encodes=sum(each.number < BUCKET for made in track.tries.values() for each in made),
        crfs=(min(crfs), max(crfs)),
    )


def _target(plan: Plan, found: Sequence[ReachedQuality | None]) -> TargetReport | None:
    given = [each for each in found if each is not None]
    return TargetReport(asked=plan.spec.target_quality or "", **_quality(plan, given)) if given else None


def _quality(plan: Plan, found: Sequence[ReachedQuality]) -> dict[str, Any]:
    """Return the quality of all pictures of some segments."""
    target = plan.encoder.target
    values = [value for each in found for value in each.values]
    crfs = [float(each.crf) for each in found]
    reached = summary(target.metric, values, target.percentile) / UNITS if target is not None and values else None
    return {
        "reached": None if reached is None else float(reached),
        "worst": min(values) / UNITS if values else None,
        "encodes": sum(each.encodes for each in found),
        "crfs": (min(crfs), max(crfs)),
    }
