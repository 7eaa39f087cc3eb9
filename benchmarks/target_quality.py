"""Compare ``--target-quality`` with its target, and its bytes with those of one CRF for the whole film.

``python benchmarks/target_quality.py FILM ... [options]``; README.md beside this file says what each number means.
"""

import argparse
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Final

import av
from bench.encoded import encode_segment, packets_of
from bench.failures import CommandFailed
from bench.ffmpeg import look_for_ffmpeg, run_ffmpeg
from bench.machine import describe_run, described_lines
from bench.program import FILM, run_in_folder
from bench.table import number, save_results, table_lines

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec, EncoderSettings, with_crf
from codecfleet.actors.encode.target import QualityMetric, QualityTarget
from codecfleet.actors.quality.measuring import UNITS, DecodedBack, PairMeter, summary
from codecfleet.actors.quality.vmaf import VmafMeter, vmaf_tool
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec

TARGETS: Final = ("xpsnr:40", "xpsnr:40:p5", "vmaf:90", "vmaf:90:p5")
_NEAR: Final = {QualityMetric.XPSNR: 0.2, QualityMetric.VMAF: 0.5}
"""How far from the target counts as reached."""
_WORST_PERCENT: Final = 5
_QUARTERS: Final = 4  # in a CRF
_LOOKED_STEPS: Final = 8
"""How many steps of the encoder's CRF are tried on both sides of a jump; and every so many over the whole scale."""
_LEAP: Final = 12  # how many quarters a search goes at once
_HEADS: Final = (
    *("film", "target", "miss", "worst segment's", "most encodes", "CRFs"),
    *("unreachable segments", "bytes of fixed"),
)
_SUMMARY: Final = (
    *("target", "films", "within", "unreachable", "segments", "within"),
    *("most encodes", "median bytes", "least", "most"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfReach:
    """The two neighbouring CRFs between which a segment's quality passes the target, or one limit of the search."""

    crfs: tuple[float, ...]
    misses: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A film that was encoded with a target; misses are in the metric's unit, above 0 if the quality is higher."""

    film: str
    target: str
    frames: int
    miss: float
    segment_misses: tuple[float, ...]
    encodes: tuple[int, ...]  # of each segment
    crfs: tuple[str, ...]  # of each segment
    out_of_reach: tuple[OutOfReach | None, ...]  # of each segment of a missed film; None if it can be near
    bytes: int
    worst_5_percent: float  # the value below which 5 % of the film's pictures are
    fixed_bytes: int | None  # of the fixed CRF with the same worst 5 %; None if no CRF has them

    @property
    def of_fixed(self) -> float | None:
        """The bytes as a part of those of the best fixed CRF."""
        return None if self.fixed_bytes is None else self.bytes / self.fixed_bytes

    @property
    def is_within(self) -> bool:
        """Whether the film is near the target."""
        return abs(self.miss) <= _near(self.target)

    @property
    def is_unreachable(self) -> bool:
        """Whether the film is not near the target, and every segment that is not cannot be."""
        segments = zip(self.segment_misses, self.out_of_reach, strict=True)
        missed = [out for miss, out in segments if abs(miss) > _near(self.target)]
        return not self.is_within and bool(missed) and None not in missed


def _near(target: str) -> float:
    return _NEAR[QualityTarget.parse(target).metric]


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _measure_all(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("films", nargs="*", type=Path, default=[FILM], help="the films (default: the bundled film)")
    add("--targets", nargs="+", type=QualityTarget.parse, default=list(map(QualityTarget.parse, TARGETS)))
    add("--codec", type=Codec, choices=list(Codec), default=Codec.H264, help="the codec (default: h264)")
    add("--preset", type=int, choices=range(1, 8), default=1, help="codecfleet's preset (default: 1)")
    add("--seconds", type=Fraction, default=Fraction(8), help="how much of each film is used (default: 8)")
    add("--height", type=int, default=240, help="the height to which larger pictures are scaled (default: 240)")
    add("--segment-seconds", type=Fraction, default=Fraction(2), help="length of a segment (default: 2)")
    add("--jobs", type=int, default=2, metavar="N", help="how many films are measured at a time (default: 2)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json, again after each film")
    return parser


def _measure_all(options: argparse.Namespace, folder: Path) -> None:
    ffmpeg = look_for_ffmpeg()
    document = describe_run(ffmpeg)
    print("\n".join(described_lines(document)))
    asked = {name: getattr(options, name) for name in ("codec", "preset", "height")}
    asked |= {name: float(getattr(options, name)) for name in ("seconds", "segment_seconds")}
    found: list[Reached] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        films = [
            pool.submit(_measure_film, ffmpeg, film, folder / f"{count}.mkv", options)
            for count, film in enumerate(options.films)
        ]
        for each in films:
            found += each.result()
            if options.save:
                save_results(options.save, document | asked | {"encodes": [asdict(each) for each in found]})
    print("\n" + "\n".join(table_lines(_HEADS, [_row(each) for each in found])))
    print("\n" + "\n".join(table_lines(_SUMMARY, [_summary_row(str(each), found) for each in options.targets])))


def _make_clip(ffmpeg: str, film: Path, clip: Path, options: argparse.Namespace) -> None:
    """Write the film's beginning without loss, with a keyframe at each cut."""
    size = f"scale=-2:trunc(min({options.height}\\,ih)/2)*2,setsar=1,format=yuv420p"
    limits = ["-an", "-sn", "-t", str(float(options.seconds)), "-vf", size, "-fps_mode", "passthrough"]
    keys = ["-force_key_frames", f"expr:gte(t,n_forced*{float(options.segment_seconds)})"]
    made = ["-c:v", "libx264", "-preset", "ultrafast", "-qp", "0", *keys]
    run_ffmpeg(ffmpeg, ["-i", str(film.resolve()), "-map", "0:v:0", *limits, *made, str(clip)])


def _measure_film(ffmpeg: str, film: Path, clip: Path, options: argparse.Namespace) -> list[Reached]:
    _make_clip(ffmpeg, film, clip, options)
    plans = [_planned(clip, target, options) for target in options.targets]
    fixed = _FixedCrfs(plans[0], clip)
    found = [_reached(film.stem, plan, fixed) for plan in plans]
    for each in found:
        print("  " + ", ".join(_row(each)), flush=True)
    return found


def _planned(clip: Path, target: QualityTarget, options: argparse.Namespace) -> Plan:
    wanted = {
        "source": str(clip),
        "output": str(clip.with_suffix(".webm" if options.codec is Codec.VP9 else ".mp4")),
        "codec": options.codec,
        "preset": options.preset,
        "segment_s": options.segment_seconds,
        "target_quality": str(target),
    }
    return plan_transcode(TranscodeSpec.model_validate(wanted))


def _reached(name: str, plan: Plan, fixed: "_FixedCrfs") -> Reached:
    target = plan.encoder.target
    made = [encode_segment(plan, segment, plan.encoder) for segment in range(len(plan.segments))]
    qualities = [each.quality for each in made if each.quality is not None and each.quality.values]
    if target is None or target.crfs is None or len(qualities) != len(made):
        message = f"{name}: a segment has no quality"
        raise CommandFailed(message)
    values = [value for each in qualities for value in each.values]
    levels = [summary(target.metric, each.values, target.percentile) for each in qualities]
    worst = summary(target.metric, values, _WORST_PERCENT)
    crfs = tuple(each.crf for each in qualities)
    misses = tuple(float(each / UNITS - target.value) for each in levels)
    near = _NEAR[target.metric]
    film_miss = float(summary(target.metric, values, target.percentile) / UNITS - target.value)
    return Reached(
        film=name,
        target=str(replace(target, crfs=None)),
        frames=len(values),
        miss=film_miss,
        segment_misses=misses,
        encodes=tuple(each.encodes for each in qualities),
        crfs=crfs,
        out_of_reach=tuple(
            fixed.out_of_reach(target, segment) if abs(film_miss) > near and abs(miss) > near else None
            for segment, miss in enumerate(misses)
        ),
        bytes=sum(len(each.payload) for each in made),
        worst_5_percent=float(worst / UNITS),
        fixed_bytes=fixed.bytes_at(target.metric, worst, list(map(Fraction, crfs))),
    )


class _FixedCrfs:
    """Encodes a film at one CRF, with the same cuts, and keeps what was measured."""

    def __init__(self, plan: Plan, clip: Path) -> None:
        self._plan = plan
        with av.open(str(clip)) as container:
            self._pictures = list(container.decode(video=0))
        self._known: dict[tuple[QualityMetric, int, Fraction], tuple[int, list[int]]] = {}

    def out_of_reach(self, target: QualityTarget, segment: int) -> OutOfReach | None:
        """Return between which CRFs a segment's quality jumps over the target; None if it does not.

        Finds the jump as if the quality fell from CRF to CRF, and then tries the steps around it and some elsewhere.
        """
        step = PROFILES[self._plan.encoder.codec].crf_step
        best, worst = (int(each / step) for each in target.crfs or ())

        def miss(steps: int) -> float:
            values = self._segment_at(target.metric, segment, steps * step)[1]
            return float(summary(target.metric, values, target.percentile) / UNITS - target.value)

        low, high = best, worst
        if miss(low) < 0:
            high = low
        elif miss(high) >= 0:
            low = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if miss(middle) >= 0 else (low, middle)
        around = range(max(best, low - _LOOKED_STEPS), min(worst, high + _LOOKED_STEPS) + 1)
        if any(abs(miss(each)) <= _NEAR[target.metric] for each in (*around, *range(best, worst, _LOOKED_STEPS))):
            return None
        crfs = (low, high) if low < high else (low,)
        return OutOfReach(crfs=tuple(float(each * step) for each in crfs), misses=tuple(map(miss, crfs)))

    def bytes_at(self, metric: QualityMetric, worst: Fraction, near: Sequence[Fraction]) -> int | None:
        """Return the bytes at which the worst 5 % are as good as ``worst``, between the two nearest quarter CRFs.

        The search begins at the CRFs ``near``; None if no usual CRF is as good, or as bad.
        """
        best, most = (crf * _QUARTERS for crf in PROFILES[self._plan.encoder.codec].usual_crfs)
        low, high = (round(crf * _QUARTERS) for crf in (min(near), max(near)))
        low, high = max(low - 1, best), min(high + 1, most)
        while (above := self._at(metric, low))[1] < worst:
            if low == best:
                return None
            low = max(low - _LEAP, best)
        while (below := self._at(metric, high))[1] >= worst:
            if high == most:
                return None
            high = min(high + _LEAP, most)
        while high - low > 1:
            guess = low + round((above[1] - worst) / (above[1] - below[1]) * (high - low))
            middle = min(max(guess, low + 1), high - 1)
            found = self._at(metric, middle)
            if found[1] >= worst:
                low, above = middle, found
            else:
                high, below = middle, found
        part = float((above[1] - worst) / (above[1] - below[1]))
        return round(math.exp(math.log(above[0]) * (1 - part) + math.log(below[0]) * part))

    def _at(self, metric: QualityMetric, quarters: int) -> tuple[int, Fraction]:
        """Return the film's bytes at a CRF, and the value, in ``UNITS``, below which 5 % of its pictures are."""
        crf = Fraction(quarters, _QUARTERS)
        made = [self._segment_at(metric, segment, crf) for segment in range(len(self._plan.segments))]
        values = [each for _, own in made for each in own]
        return sum(size for size, _ in made), summary(metric, values, _WORST_PERCENT)

    def _segment_at(self, metric: QualityMetric, segment: int, crf: Fraction) -> tuple[int, list[int]]:
        """Return a segment's bytes at a CRF, and its pictures' values."""
        key = metric, segment, crf
        if key not in self._known:
            self._known[key] = self._encoded(metric, segment, crf)
        return self._known[key]

    def _encoded(self, metric: QualityMetric, segment: int, crf: Fraction) -> tuple[int, list[int]]:
        encoder = replace(with_crf(self._plan.encoder, crf), target=None)
        made = encode_segment(self._plan, segment, encoder)
        start = sum(each.frames for each in self._plan.segments[:segment])
        originals = self._pictures[start : start + made.frames_out]
        with DecodedBack(encoder, made.extradata, packets_of(made)) as decoded, _meter(metric, encoder) as meter:
            for (_, shown), original in zip(decoded.pictures(), originals, strict=True):
                meter.take(shown, original)
            while meter.drain():
                pass
            return len(made.payload), list(meter.values)


def _meter(metric: QualityMetric, encoder: EncoderSettings) -> PairMeter | VmafMeter:
    tool = vmaf_tool() if metric is QualityMetric.VMAF else None
    return PairMeter(metric, encoder.format) if tool is None else VmafMeter(encoder.format, tool.version, 1)


def _row(each: Reached) -> list[str]:
    furthest = max(each.segment_misses, key=abs)
    shown = [each.film, each.target, f"{each.miss:+.2f}", f"{furthest:+.2f}", str(max(each.encodes))]
    out = sum(segment is not None for segment in each.out_of_reach)
    return [*shown, " ".join(each.crfs), str(out), number(each.of_fixed, 3)]


def _summary_row(target: str, found: Sequence[Reached]) -> list[str]:
    films = [each for each in found if each.target == target]
    misses = [abs(miss) for each in films for miss in each.segment_misses]
    ratios = sorted(each.of_fixed for each in films if each.of_fixed is not None)
    shown = [target, str(len(films)), str(sum(each.is_within for each in films))]
    shown += [str(sum(each.is_unreachable for each in films)), str(len(misses))]
    shown += [str(sum(each <= _near(target) for each in misses))]
    shown += [str(max(max(each.encodes) for each in films))]
    middle = fmean(ratios[(len(ratios) - 1) // 2 : len(ratios) // 2 + 1]) if ratios else None
    return [*shown, *(number(each, 3) for each in (middle, min(ratios, default=None), max(ratios, default=None)))]


if __name__ == "__main__":
    raise SystemExit(main())
