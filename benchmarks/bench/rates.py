"""The quality comparison: the cost of cutting in bits, compared with FFmpeg at the same or at default keyframes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .bd_rate import RatePoint, bd_psnr_db, bd_rate_percent, psnr_at_rate_db
from .codecs import CodecCase, as_arguments
from .contenders import Bench, Cut, Run, read_plan, run_ffmpeg_once, run_fleet
from .failures import CommandFailed
from .media import read_video
from .quality import compare_pictures
from .table import number, table_lines

__all__ = ["RateCurve", "compare_rates", "rate_lines", "same_grid_options", "summarise"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """One way to encode, at rising quality numbers; ``points[n]`` was encoded with ``qualities[n]``."""

    way: str
    encoder: str
    qualities: tuple[int, ...]
    points: tuple[RatePoint, ...]


_FLEET, _SAME_GRID, _OWN_GRID = "codecfleet", "ffmpeg, same keyframes", "ffmpeg, its own keyframes"


def compare_rates(bench: Bench, case: CodecCase, threads: int, say: Say) -> dict[str, Any]:
    """Encode the source in three ways at each of the case's qualities; return the curves and their differences."""
    cuts = read_plan(bench, case)
    runs: dict[str, list[tuple[int, Run, RatePoint]]] = {_FLEET: [], _SAME_GRID: [], _OWN_GRID: []}
    for quality in case.qualities:
        fleet = run_fleet(bench, case, quality)
        forced = same_grid_options(bench, case, cuts, fleet.encoder)
        by_way = {
            _FLEET: fleet,
            _SAME_GRID: run_ffmpeg_once(bench, case, quality, extra=forced, name="same-grid"),
            _OWN_GRID: run_ffmpeg_once(bench, case, quality, name="own-grid"),
        }
        for way, run in by_way.items():
            point = _point(bench, run, threads)
            runs[way].append((quality, run, point))
            say(f"  {case.name} {way}, quality {quality}: {point.rate_bps / 1e3:.1f} kbit/s, {point.psnr_db:.3f} dB")
    curves = {
        way: RateCurve(
            way=way,
            encoder=done[0][1].encoder,
            qualities=tuple(quality for quality, _, _ in done),
            points=tuple(point for _, _, point in done),
        )
        for way, done in runs.items()
    }
    return summarise(case, curves)


def same_grid_options(bench: Bench, case: CodecCase, cuts: Sequence[Cut], encoder_kind: str) -> list[str]:
    """Return options that give FFmpeg codecfleet's keyframes: at its cuts, and with the same longest interval."""
    # Slightly early, because FFmpeg turns the first picture at or after each time into a keyframe.
    times = [float(bench.facts.before_frame_s(cut.start_s) - bench.facts.times_s[0]) for cut in cuts if cut.start_s > 0]
    longest = re.search(r" g=(\d+)", encoder_kind)
    options = as_arguments(case.forced_keyframes)
    options += ["-force_key_frames", ",".join(f"{time:.6f}" for time in times)] if times else []
    return options + (["-g", longest[1]] if longest else [])


def _point(bench: Bench, run: Run, threads: int) -> RatePoint:
    facts = read_video(run.output)
    if facts.frames != bench.facts.frames:
        message = f"{run.output.name} has {facts.frames} frames of {bench.facts.frames}: no comparison is possible"
        raise CommandFailed(message)
    quality = compare_pictures(bench.ffmpeg, run.output, bench.source, vmaf_every=0, threads=threads)
    # Rates are over the source's length: an output may state a last frame that is a tick longer or shorter.
    return RatePoint(float(facts.video_bytes * 8 / bench.facts.duration_s), quality.psnr_db)


def summarise(case: CodecCase, curves: dict[str, RateCurve]) -> dict[str, Any]:
    """Return the curves, and codecfleet's differences from FFmpeg's curves, as plain values.

    ``psnr_difference_db`` is at equal rate, averaged over the rates of both curves; ``at_default_db`` at the rate that
    codecfleet takes at the case's own quality, None if the peer's curve does not reach it. All are None if the points
    form no curve.
    """
    ours = curves[_FLEET]
    default = ours.points[ours.qualities.index(case.quality)]
    against = {way: _differences(curves[way].points, ours.points, default) for way in (_SAME_GRID, _OWN_GRID)}
    return {"case": case.name, "curves": [asdict(curve) for curve in curves.values()], "codecfleet_against": against}


def _differences(peer: Sequence[RatePoint], ours: Sequence[RatePoint], default: RatePoint) -> dict[str, float | None]:
    try:
        there = psnr_at_rate_db(peer, default.rate_bps)
        return {
            "bd_rate_percent": bd_rate_percent(peer, ours),
            "psnr_difference_db": bd_psnr_db(peer, ours),
            "at_default_db": None if there is None else default.psnr_db - there,
        }
    except ValueError:
        return dict.fromkeys(("bd_rate_percent", "psnr_difference_db", "at_default_db"))


def rate_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the comparisons as a table."""
    heads = ("codecfleet against", "BD-rate %", "PSNR at equal rate dB", "at the default quality dB")
    rows = [
        [f"{one['case']}, {way}", *(number(figures[name], 3) for name in figures)]
        for one in found
        for way, figures in one["codecfleet_against"].items()
    ]
    return table_lines(heads, rows)
