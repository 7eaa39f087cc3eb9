"""Plans a part of a recording, and computes from the encoded part what the next one needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np

from ...actors.media.location import local_path
from ...errors import Unsupported
from ..join.rate_guard import LeakyBucket
from ..ladder.plan import Ladder
from ..ladder.tracks import given_video
from ..package.proven import read_proven
from ..package.samples import Samples
from ..plan.plan import Plan
from ..report.report import Report
from .windows import Window

_COUNTED = ("frames_in", "frames_out", "output_frames", "seams", "seams_equal")
_STEP = "Make the ladder of the finished file, without --follow."


def _next_picture_s(plan: Plan, end_ticks: int | None) -> Fraction | None:
    """Return the time of the first picture at or after ``end_ticks``, on the source's clock; None at the end."""
    if end_ticks is None:
        return None
    times = plan.index.times
    return int(times[int(np.searchsorted(times, end_ticks))]) * plan.index.time_base


def part_ladder(
    ladder: Ladder, window: Window, folder: Path, beside_s: Fraction | None, fullness_bits: Mapping[str, Fraction]
) -> Ladder:
    """Return the ladder of a window's pictures, without other tracks; each rendition is a file of its own.

    ``beside_s`` is when the first other track begins; None for later parts, whose files begin with their pictures.
    ``fullness_bits`` has the fullness of the decoder's buffer before the part, by rendition.
    """
    plans = {
        name: _part_plan(plan, window, folder / f"{name}-{window.first:06d}.mp4", beside_s, fullness_bits.get(name))
        for name, plan in ladder.plans.items()
    }
    return replace(ladder, plans=plans)


def _part_plan(
    plan: Plan, window: Window, path: Path, beside_s: Fraction | None, fullness_bits: Fraction | None
) -> Plan:
    segments = tuple(
        replace(each, segment=number) for number, each in enumerate(plan.segments[window.first : window.until])
    )
    next_s = _next_picture_s(plan, segments[-1].end_ticks)
    first_s = plan.index.first_ticks * plan.index.time_base
    spec = plan.spec.model_copy(
        update={
            "output": str(path),
            "overwrite": True,
            "no_journal": True,
            "end_s": None if next_s is None else next_s - first_s,
        }
    )
    carry = replace(plan.carry, tracks=(), chapters=(), losses=(), beside_s=beside_s)
    is_software = spec.encoder != "nvenc"  # "auto" too: a GPU that joins later would write other parameter sets
    return replace(
        plan,
        spec=spec,
        carry=carry,
        segments=segments,
        fullness_bits=fullness_bits,
        nvenc=None if is_software else plan.nvenc,
    )


def check_same(first: Ladder, now: Ladder, taken: tuple[int | None, ...]) -> None:
    """Check that the first plan's decisions still hold; ``taken`` has the ends of the encoded segments, in ticks.

    Raises Unsupported: the recording's format has changed, or its later packets move cuts of encoded segments.
    """
    for name, plan in now.plans.items():
        before = first.plans.get(name)
        if before is None or before.encoder != plan.encoder or before.index.time_base != plan.index.time_base:
            raise Unsupported(f"the recording's picture format has changed, so {name} cannot continue", _STEP)
        ends = tuple(each.end_ticks for each in plan.segments[: len(taken)])
        if ends != taken:
            raise Unsupported("the recording's times are damaged: its later packets move earlier segments", _STEP)


def ends_s(ladder: Ladder, begins_s: Fraction) -> Fraction:
    """Return when an encoded part's pictures end in the package, where the file's time 0 is at ``begins_s``."""
    name, plan = next(iter(ladder.plans.items()))
    samples = read_proven(given_video(name, local_path(plan.spec.output))).samples
    return (round(begins_s / samples.time_base) + samples.end) * samples.time_base


def fullness_after(plan: Plan, samples: Samples) -> Fraction | None:
    """Return how full a decoder's buffer is after a part with these samples, in bits; None without a rate limit."""
    rate, begins = plan.encoder.rate, plan.fullness_bits
    if rate.maxrate_bps is None or rate.bufsize_bits is None:
        return None
    bucket = LeakyBucket(rate.bufsize_bits, rate.maxrate_bps)
    durations_s = [int(each) * samples.time_base for each in samples.durations]
    begins = bucket.begins_bits if begins is None else begins
    return bucket.pass_through(begins, samples.sizes_bytes.tolist(), durations_s).fullness_bits


def merged(parts: Sequence[Report]) -> Report:
    """Return the report of a whole rendition from the reports of its parts."""
    segments = chain.from_iterable(each.segments for each in parts)
    proof = parts[0].proof.model_copy(
        update={
            **{name: sum(getattr(each.proof, name) for each in parts) for name in _COUNTED},
            "last_pts_s": parts[-1].proof.last_pts_s,
            "output_sha256": "",
        }
    )
    return parts[0].model_copy(
        update={
            "end_s": None,
            "frames": sum(each.frames for each in parts),
            "output_bytes": sum(each.output_bytes for each in parts),
            "duration_s": str(sum(Fraction(each.duration_s) for each in parts)),
            "segments": tuple(each.model_copy(update={"segment": n}) for n, each in enumerate(segments)),
            "proof": proof,
            "warnings": tuple({each.message: each for part in parts for each in part.warnings}.values()),
        }
    )
