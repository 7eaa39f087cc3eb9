"""Making a job's report out of what its stages left behind."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ..actors.device import SESSIONS_OPENING
from ..actors.segment import NAMED_DAMAGED_FRAMES, EncodedSegment
from .board import Run
from .plan import Plan
from .report import Proof, Report, SegmentReport, Warning_
from .spool import SpooledSegment

__all__ = ["damage_warnings", "make_report"]


def damage_warnings(plan: Plan, segments: Sequence[SpooledSegment]) -> list[Warning_]:
    """Return what the workers met that the index could not know.

    That is damage, mended times, changed sizes, moved cuts, and what a device did not decode, except for what is a
    matter of course while a worker is new.
    """
    facts = [segment.facts for segment in segments]
    counts = {
        "damaged": (sum(f.failed_packets for f in facts), "{} packets of the source do not decode; they were skipped"),
        "corrupt": (
            sum(f.corrupt_frames for f in facts),
            "{} pictures of the source are damaged; they were kept" + _times(plan, facts),
        ),
        "time-missing": (sum(f.mended.missing for f in facts), "{} pictures have no timestamp; theirs was derived"),
        "time-repeated": (sum(f.mended.repeated for f in facts), "{} pictures shared a timestamp; they were spread"),
        "merged": (len(plan.segments) - len(segments), "{} cuts were given up, because no access point proved them"),
    }
    found = [
        Warning_(code=code, message=text.format(count), checks=()) for code, (count, text) in counts.items() if count
    ]
    found += _resized(plan, segments)
    reasons = Counter(fact.fallback for fact in facts if fact.fallback not in ("", SESSIONS_OPENING))
    return found + [
        Warning_(code="fallback", message=f"software decoded {count} of {len(facts)} segments: {reason}", checks=())
        for reason, count in reasons.items()
    ]


def _resized(plan: Plan, segments: Sequence[SpooledSegment]) -> Iterator[Warning_]:
    """Yield how many pictures of which sizes were scaled, unless that was asked for."""
    counts: Counter[tuple[int, int]] = Counter()
    for segment in segments:
        counts.update(segment.facts.resized)
    if counts and plan.spec.scale is None:
        sizes = ", ".join(f"{count} of {width}x{height}" for (width, height), count in sorted(counts.items()))
        picture = plan.encoder.format
        message = f"pictures of other sizes were scaled to {picture.width}x{picture.height}: {sizes}"
        yield Warning_(code="resized", message=message, checks=("metadata.aspect",))


def _times(plan: Plan, facts: Sequence[EncodedSegment]) -> str:
    """Say when the first damaged pictures are shown."""
    times = [float(plan.relative_s(ticks)) for fact in facts for ticks in fact.damaged_ticks]
    named = ", ".join(f"{time_s:.3f}" for time_s in times[:NAMED_DAMAGED_FRAMES])
    return f", at {named} s" + (
        " and later" if sum(fact.corrupt_frames for fact in facts) > NAMED_DAMAGED_FRAMES else ""
    )


def make_report(
    *,
    plan: Plan,
    job: str,
    runs: Sequence[Run],
    segments: Sequence[SpooledSegment],
    proof: Proof,
    warnings: tuple[Warning_, ...],
    stages_s: dict[str, float],
    output_bytes: int,
    workers: int,
    gpu_refusal: str = "",
) -> Report:
    """Return the report of a finished job."""
    picture = plan.encoder.format
    encode_s = stages_s.get("encode", 0.0)
    return Report(
        job=job,
        source=plan.spec.source,
        output=plan.spec.output,
        container=plan.container.name,
        codec=plan.encoder.codec.value,
        encoder_kind=plan.encoder_kind,
        width=picture.width,
        height=picture.height,
        pix_fmt=picture.pix_fmt,
        time_base=str(plan.index.time_base),
        duration_s=str(plan.duration_s),
        frames=proof.output_frames,
        output_bytes=output_bytes,
        workers=workers,
        segments=tuple(_segment(plan, run, segment) for run, segment in zip(runs, segments, strict=True)),
        tracks=plan.tracks_report,
        proof=proof,
        warnings=warnings,
        choices=plan.choices,
        timings_s=stages_s,
        fps=round(proof.output_frames / encode_s, 2) if encode_s else 0.0,
        gpu_refusal=gpu_refusal,
    )


def _segment(plan: Plan, run: Run, spooled: SpooledSegment) -> SegmentReport:
    facts, planned = spooled.facts, plan.segments[run.segment]
    return SegmentReport(
        segment=run.segment,
        start_ticks=planned.start_ticks,
        end_ticks=plan.segments[run.until].end_ticks,
        cut_reason=planned.reason,
        frames_in=facts.frames_in,
        frames_out=facts.frames_out,
        first_pts_ticks=facts.first_ticks,
        last_pts_ticks=facts.last_ticks,
        payload_bytes=spooled.payload_bytes,
        payload_sha256=spooled.payload_sha256,
        damaged_packets=facts.failed_packets,
        damaged_frames=facts.corrupt_frames,
        damaged_pts_ticks=facts.damaged_ticks,
        entry_moves=run.entry_moves,
        attempts=run.attempt,
        decoded_by=facts.decoded_by,
        fallback=facts.fallback,
        decode_s=round(facts.decode_s, 4),
        encode_s=round(facts.encode_s, 4),
        wall_s=round(facts.wall_s, 4),
    )
