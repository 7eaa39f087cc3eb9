"""The speed comparison: runs in turn, reduced to medians, ratios and a table."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .codecs import CodecCase
from .contenders import Bench, Contender, Cut, Run, read_plan, run_fan_out, run_ffmpeg_once, run_fleet
from .media import read_video
from .quality import Quality, compare_pictures
from .table import number, spread, table_lines

__all__ = ["SpeedOptions", "compare_speed", "ratio_lines", "ratios", "speed_lines"]

_MIB = 2**20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOptions:
    """How often each contender runs, and what is measured of its output."""

    contenders: tuple[Contender, ...]
    repeats: int
    fan_out_threads: int
    vmaf_every: int
    threads: int
    with_quality: bool


def compare_speed(bench: Bench, case: CodecCase, options: SpeedOptions, say: Say) -> list[dict[str, Any]]:
    """Run every contender so many times, one after the other and in turn (A B C A B C); return a record of each."""
    runs: dict[Contender, list[Run]] = {contender: [] for contender in options.contenders}
    cuts = read_plan(bench, case) if Contender.FAN_OUT in runs else ()
    for repeat in range(options.repeats):
        for contender, done in runs.items():
            done.append(_run(bench, case, contender, options, cuts, in_flight=_in_flight(bench, runs, options)))
            wall_s = done[-1].measured.wall_s
            say(f"  {case.name} {contender} {repeat + 1}/{options.repeats}: {wall_s:.2f} s")
    return [_record(bench, case, done, options) for done in runs.values()]


def _in_flight(bench: Bench, runs: dict[Contender, list[Run]], options: SpeedOptions) -> int:
    """As many processes at a time as codecfleet had segments in flight, where it has run."""
    fleet = runs.get(Contender.FLEET)
    return fleet[-1].in_flight if fleet else bench.workers or options.threads


def _run(
    bench: Bench, case: CodecCase, contender: Contender, options: SpeedOptions, cuts: Sequence[Cut], *, in_flight: int
) -> Run:
    if contender is Contender.FLEET:
        return run_fleet(bench, case, case.quality)
    if contender is Contender.FFMPEG:
        return run_ffmpeg_once(bench, case, case.quality)
    return run_fan_out(bench, case, cuts, in_flight=in_flight, threads=options.fan_out_threads)


def _record(bench: Bench, case: CodecCase, runs: Sequence[Run], options: SpeedOptions) -> dict[str, Any]:
    last = runs[-1]
    facts = read_video(last.output)
    same = facts.frames == bench.facts.frames
    quality = _quality(bench, last, options) if same and options.with_quality else None
    measured = [run.measured for run in runs]
    return {
        "case": case.name,
        "contender": last.contender.value,
        "encoder": last.encoder,
        "in_flight": last.in_flight,
        "frames": facts.frames,
        "frames_of_source": bench.facts.frames,
        "wall_s": spread([run.measured.wall_s for run in runs]),
        "start_up_s": spread([run.start_up_s for run in runs]),
        "work_s": spread([run.work_s for run in runs]),
        "fps": spread([facts.frames / run.work_s for run in runs]),
        "cpu_s": spread([one.cpu_s for one in measured]),
        "peak_bytes": spread([one.peak_bytes for one in measured]),
        "memory_kind": last.measured.memory_kind,
        "file_bytes": facts.file_bytes,
        "video_bytes": facts.video_bytes,
        "quality": None if quality is None else asdict(quality),
        "runs": [_run_record(run) for run in runs],
    }


def _quality(bench: Bench, run: Run, options: SpeedOptions) -> Quality:
    return compare_pictures(
        bench.ffmpeg, run.output, bench.source, vmaf_every=options.vmaf_every, threads=options.threads
    )


def _run_record(run: Run) -> dict[str, Any]:
    measured = {key: value for key, value in asdict(run.measured).items() if key != "output"}
    return measured | {"start_up_s": run.start_up_s, "stages_s": run.stages_s}


_HEADS = (
    "encoder, way",
    "wall s",
    "start-up s",
    "work s",
    "fps",
    "CPU s",
    "peak MiB",
    "size MB",
    "PSNR dB",
    "SSIM",
    "VMAF",
)


def speed_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the records as a table: medians, and how far apart the work's runs were."""
    notes = [
        f"{r['case']} {r['contender']}: {r['frames']} frames of {r['frames_of_source']}, so no quality is compared"
        for r in records
        if r["frames"] != r["frames_of_source"]
    ]
    return [*table_lines(_HEADS, [_row(record) for record in records]), *notes]


def _row(record: dict[str, Any]) -> list[str]:
    quality = record["quality"] or {"psnr_db": None, "ssim": None, "vmaf": None}
    work = record["work_s"]
    around = f" ({work['least']:.2f}-{work['most']:.2f})" if len(record["runs"]) > 1 else ""
    way = record["contender"] + (f" x{record['in_flight']}" if record["in_flight"] > 1 else "")
    return [
        f"{record['case']}, {way}",
        number(record["wall_s"]["median"], 2),
        number(record["start_up_s"]["median"], 2),
        number(work["median"], 2) + around,
        number(record["fps"]["median"], 1),
        number(record["cpu_s"]["median"], 1),
        number(record["peak_bytes"]["median"] / _MIB, 0),
        number(record["file_bytes"] / 1e6, 2),
        number(quality["psnr_db"], 2),
        number(quality["ssim"], 4),
        number(quality["vmaf"], 2),
    ]


def ratios(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return codecfleet's medians over each peer's, per case; below 1 is less."""
    by_place = {(record["case"], record["contender"]): record for record in records}
    found = []
    for (case, contender), peer in by_place.items():
        ours = by_place.get((case, Contender.FLEET.value))
        if ours is None or contender == Contender.FLEET.value:
            continue
        medians = {
            name: ours[name]["median"] / peer[name]["median"] for name in ("wall_s", "work_s", "cpu_s", "peak_bytes")
        }
        size = {"video_bytes": ours["video_bytes"] / peer["video_bytes"]}
        found.append({"case": case, "over": contender, **medians, **size})
    return found


def ratio_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ratios as a table."""
    names = ("wall_s", "work_s", "cpu_s", "peak_bytes", "video_bytes")
    heads = ("codecfleet over", "wall", "work", "CPU", "peak memory", "video bytes")
    rows = [[f"{r['case']}, {r['over']}", *(number(r[name], 3) for name in names)] for r in found]
    return table_lines(heads, rows)
